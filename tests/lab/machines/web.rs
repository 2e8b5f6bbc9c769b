//! A Service with pods on all nodes.

use serde_json::{Value, json};

/// The image with the servers and tools of Kubernetes' own tests; `netexec` answers with its pod's name.
pub const AGNHOST: &str = "registry.k8s.io/e2e-test-images/agnhost:2.53";

/// A Service, and a Deployment for it as users would write it: a pod on each of three nodes, which ends only once it
/// is out of use.
pub fn web(namespace: &str, name: &str) -> [Value; 2] {
    let labels = json!({ "app": name });
    let metadata = json!({ "name": name, "namespace": namespace });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "LoadBalancer",
            "selector": labels,
            "ports": [{ "port": 80, "targetPort": 8080 }],
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "affinity": { "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{
                            "weight": 100,
                            "podAffinityTerm": {
                                "topologyKey": "kubernetes.io/hostname",
                                "labelSelector": { "matchLabels": labels },
                            },
                        }],
                    } },
                    "containers": [{
                        "name": "server",
                        "image": AGNHOST,
                        "args": ["netexec", "--http-port=8080"],
                        "ports": [{ "containerPort": 8080 }],
                        "readinessProbe": {
                            "httpGet": { "path": "/healthz", "port": 8080 },
                            "periodSeconds": 1,
                        },
                        // Until kube-proxy everywhere knows that it is to end.
                        "lifecycle": { "preStop": { "sleep": { "seconds": 5 } } },
                    }],
                },
            },
        },
    });
    [service, deployment]
}
