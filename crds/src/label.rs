//! The labels of Kubernetes that Leasehold reads. It writes none.

use crate::annotation::entries;

entries! {
    LABELS:
    EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers", on [Node] by "user, installer",
        "any",
        "The node announces no address, unless its speaker runs with `--ignore-exclude-label`.";
    SERVICE_PROXY_NAME = "service.kubernetes.io/service-proxy-name", on [Service] by "user",
        "name of a service proxy",
        "A proxy other than kube-proxy serves the Service: the speakers do not wait for rules of kube-proxy.";
}
