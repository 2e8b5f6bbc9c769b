//! Rows: what goes in, what comes out. Each outcome is also put to the rules of the definitions.

use std::collections::BTreeMap;
use std::path::Path;

use kube::ResourceExt;
use kube::core::cel::validate_cel;
use leasehold_crds::policy::{Governance, Policies, Policy};
use leasehold_crds::pool::Sharing;
use leasehold_crds::range::IpRange;
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde::Deserialize;
use serde_json::{Value, json};

use super::metallb::Inputs;
use super::notes::Printed;
use super::services::Tally;
use super::*;

mod announcements;

/// The outcome for the documents of `text`.
fn moved(text: &str) -> Outcome {
    let mut inputs = Inputs::default();
    read::documents(Path::new("test.yaml"), text, &mut inputs).unwrap();
    let outcome = convert(&inputs);
    follows_the_rules(&outcome);
    outcome
}

/// The outcome for these objects.
fn moved_objects(objects: &[Value]) -> Outcome {
    let outcome = converted(objects);
    follows_the_rules(&outcome);
    outcome
}

/// The same without a look at the rules of the definitions, which takes long.
fn converted(objects: &[Value]) -> Outcome {
    let mut inputs = Inputs::default();
    for object in objects {
        inputs.add(object.clone()).unwrap();
    }
    convert(&inputs)
}

/// That the API server would take each object, and reads what was meant.
fn follows_the_rules(outcome: &Outcome) {
    let mut names = BTreeSet::new();
    for Printed { object, notes } in &outcome.pools {
        let refused = notes.iter().any(|note| note.contains("the API server refuses"));
        assert_eq!(validate_cel(object).is_err(), refused, "{object:?}");
        assert!(names.insert(object.name_any()), "{} twice", object.name_any());
        for entry in &object.spec.addresses {
            assert!(entry.parse().is_ok(), "{entry:?}");
        }
    }
    names.clear();
    for Printed { object, notes } in &outcome.policies {
        let refused = notes.iter().any(|note| note.contains("the API server refuses"));
        assert_eq!(validate_cel(object).is_err(), refused, "{object:?}");
        assert!(names.insert(object.name_any()), "{} twice", object.name_any());
        assert_eq!(Policy::parse(object).is_err(), refused, "{object:?}");
    }
    let yaml = print::yaml(outcome).unwrap();
    let documents: Vec<Value> = serde_yaml_ng::Deserializer::from_str(&yaml)
        .map(|document| Value::deserialize(document).unwrap())
        .filter(|document| !document.is_null())
        .collect();
    assert_eq!(documents.len(), outcome.pools.len() + outcome.policies.len(), "{yaml}");
    let (pools, policies) = documents.split_at(outcome.pools.len());
    for (document, printed) in pools.iter().zip(&outcome.pools) {
        let read: IPAddressPool = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(read.spec, printed.object.spec);
    }
    for (document, printed) in policies.iter().zip(&outcome.policies) {
        let read: AnnouncementPolicy = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(read.spec, printed.object.spec);
    }
}

fn pool(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"namespace": "metallb-system", "name": name}, "spec": spec,
    })
}

fn advertisement(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
        "metadata": {"namespace": "metallb-system", "name": name}, "spec": spec,
    })
}

fn service(namespace: &str, name: &str, ip: &str, spec: &Value) -> Value {
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": ip}]}},
    });
    service["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    service
}

/// The spec of the first pool as it is printed, and what is said above it.
fn first_pool(outcome: &Outcome) -> (Value, String) {
    let printed = &outcome.pools[0];
    (serde_json::to_value(&printed.object.spec).unwrap(), printed.notes.join("\n"))
}

#[test]
fn the_golden_files_are_what_is_printed() {
    for (name, given, golden) in [
        (
            "simple",
            include_str!("golden/simple.metallb.yaml"),
            include_str!("golden/simple.leasehold.yaml"),
        ),
        (
            "office",
            include_str!("golden/office.metallb.yaml"),
            include_str!("golden/office.leasehold.yaml"),
        ),
        (
            "split",
            include_str!("golden/split.metallb.yaml"),
            include_str!("golden/split.leasehold.yaml"),
        ),
    ] {
        let printed = print::yaml(&moved(given)).unwrap();
        assert!(printed == golden, "{name} differs; it is now:\n{printed}");
    }
}

#[test]
fn pools_say_here_what_they_said_there() {
    for (theirs, ours, note) in [
        (json!({"addresses": ["192.0.2.0/24"]}), json!({"addresses": ["192.0.2.0/24"]}), ""),
        (
            json!({"addresses": ["192.0.2.0/24"], "autoAssign": false, "avoidBuggyIPs": true}),
            json!({"autoAssign": false, "avoidBuggyIPs": true}),
            "",
        ),
        (
            json!({"addresses": ["192.0.2.9/24", "192.0.2.0/24"]}),
            json!({"addresses": ["192.0.2.0/24"]}),
            "192.0.2.9/24 has host bits set",
        ),
        (
            json!({"addresses": ["192.0.2.0/24", "nonsense"]}),
            json!({"addresses": ["192.0.2.0/24"]}),
            "`nonsense` is neither a CIDR",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {
                "priority": 20, "namespaces": ["a", "a", "b"],
                "namespaceSelectors": [{"matchLabels": {"team": "x"}}],
                "serviceSelectors": [{"matchExpressions": [{"key": "public", "operator": "Exists"}]}],
            }}),
            json!({"serviceAllocation": {
                "priority": 20, "namespaces": ["a", "b"],
                "namespaceSelectors": [{"matchLabels": {"team": "x"}}],
                "serviceSelectors": [{"matchExpressions": [{"key": "public", "operator": "Exists"}]}],
            }}),
            "",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {"priority": 5}}),
            json!({"serviceAllocation": {"priority": 5}}),
            "in Leasehold, it is a general pool",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {
                "priority": -1, "namespaces": ["a"]}}),
            json!({"serviceAllocation": {"priority": 0, "namespaces": ["a"]}}),
            "priority -1 is converted to 0",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {
                "serviceSelectors": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]}}),
            json!({}),
            "serviceSelectors[0] is not a valid selector, and the API server refuses the pool",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {
                "namespaceSelectors": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}}),
            json!({}),
            "namespaceSelectors[0] is not a valid selector, and the API server refuses the pool",
        ),
        (
            json!({"addresses": ["192.0.2.0/24"], "colour": "red"}),
            json!({}),
            "spec.colour is unknown and omitted",
        ),
    ] {
        let (spec, notes) = first_pool(&moved_objects(&[pool("lan", &theirs)]));
        for (field, value) in ours.as_object().unwrap() {
            assert_eq!(&spec[field], value, "{field} of {theirs}");
        }
        assert!(if note.is_empty() { notes.is_empty() } else { notes.contains(note) }, "{notes}");
    }
}

#[test]
fn what_is_too_much_for_one_pool_is_joined_selected_or_split() {
    let adjacent: Vec<String> = (0..65).map(|n| format!("192.0.2.{n}/32")).collect();
    let outcome = moved_objects(&[pool("lan", &json!({"addresses": adjacent}))]);
    let (spec, notes) = first_pool(&outcome);
    assert_eq!(spec["addresses"], json!(["192.0.2.0-192.0.2.64"]));
    assert!(notes.contains("65 entries exceed the limit of 64"), "{notes}");

    let apart: Vec<String> = (0..130).map(|n| format!("10.0.{n}.1/32")).collect();
    let rest = pool("lan-2", &json!({"addresses": ["192.0.2.0/24"]}));
    let outcome = moved_objects(&[
        pool("lan", &json!({"addresses": apart})),
        rest,
        advertisement("a", &json!({"ipAddressPools": ["lan"]})),
    ]);
    let names: Vec<String> = outcome.pools.iter().map(|pool| pool.object.name_any()).collect();
    assert_eq!(names, ["lan", "lan-3", "lan-4", "lan-2"]);
    let sizes: Vec<usize> =
        outcome.pools.iter().map(|pool| pool.object.spec.addresses.len()).collect();
    assert_eq!(sizes, [64, 64, 2, 1]);
    assert_eq!(outcome.policies[0].object.spec.ip_address_pools, ["lan", "lan-3", "lan-4"]);

    let namespaces: Vec<String> = (0..65).map(|n| format!("ns-{n}")).collect();
    let selectors: Vec<Value> =
        (0..17).map(|n| json!({"matchLabels": {"n": n.to_string()}})).collect();
    let spec = json!({"addresses": ["192.0.2.0/24"], "serviceAllocation": {
        "namespaces": namespaces, "serviceSelectors": selectors}});
    let (spec, notes) = first_pool(&moved_objects(&[pool("lan", &spec)]));
    let allocation = &spec["serviceAllocation"];
    assert_eq!(allocation["namespaces"], Value::Null);
    let selected = &allocation["namespaceSelectors"][0]["matchExpressions"][0];
    assert_eq!(selected["key"], "kubernetes.io/metadata.name");
    assert_eq!(selected["values"], json!(namespaces));
    assert_eq!(allocation["serviceSelectors"].as_array().unwrap().len(), 16);
    assert!(notes.contains("serviceSelectors has 17 selectors"), "{notes}");
}

#[test]
fn pools_of_one_name_in_two_namespaces_get_two_names() {
    let mut other = pool("lan", &json!({"addresses": ["192.0.2.128-192.0.2.140"]}));
    other["metadata"]["namespace"] = json!("test");
    let outcome = moved_objects(&[other, pool("lan", &json!({"addresses": ["192.0.2.0/24"]}))]);
    let names: Vec<String> = outcome.pools.iter().map(|pool| pool.object.name_any()).collect();
    assert_eq!(names, ["lan", "lan-test"]);
    let notes = &outcome.pools[1].notes;
    assert!(notes[0].starts_with("IPAddressPool test/lan is renamed to lan-test,"), "{notes:?}");
    assert!(notes[1].starts_with("pool lan also contains 192.0.2.128-192.0.2.140"), "{notes:?}");
    assert!(outcome.notes[0].contains("several namespaces (metallb-system and test)"));
}

#[test]
fn services_are_checked_against_the_pools() {
    let pools = [
        pool("lan", &json!({"addresses": ["192.0.2.0/24"], "avoidBuggyIPs": true})),
        pool(
            "shop",
            &json!({"addresses": ["198.51.100.0/24"], "serviceAllocation": {
            "namespaces": ["shop"], "serviceSelectors": [{"matchLabels": {"public": "yes"}}]}}),
        ),
        pool(
            "teams",
            &json!({"addresses": ["203.0.113.0/24"], "serviceAllocation": {
            "namespaces": ["shop"], "namespaceSelectors": [{"matchLabels": {"team": "x"}}]}}),
        ),
    ];
    let class = |class: &str| json!({"loadBalancerClass": class});
    let none = json!({});
    let mut labelled = service("shop", "a", "198.51.100.1", &none);
    labelled["metadata"]["labels"] = json!({"public": "yes"});
    let mut annotated = service("web", "a", "10.0.0.1", &class("example.com/x"));
    annotated["metadata"]["annotations"] = json!({"metallb.io/ip-allocated-from-pool": "gone"});
    for (service, counted, note) in [
        (service("web", "a", "192.0.2.1", &none), (1, 1, 1), None),
        (labelled, (1, 1, 1), None),
        (service("web", "a", "203.0.113.1", &none), (1, 1, 1), None),
        (
            service("web", "a", "10.0.0.1", &none),
            (1, 1, 0),
            Some("Service web/a has 10.0.0.1, which no converted pool contains"),
        ),
        (
            service("web", "a", "192.0.2.255", &none),
            (1, 1, 1),
            Some("which does not admit it: the pool excludes addresses that end in .0 or .255"),
        ),
        (
            service("web", "a", "198.51.100.1", &none),
            (1, 1, 1),
            Some("of pool shop, which does not admit it: the pool serves only Services of other"),
        ),
        (
            service("shop", "a", "198.51.100.1", &none),
            (1, 1, 1),
            Some("the labels of the Service match none of the pool's serviceSelectors"),
        ),
        (
            service("web", "a", "192.0.2.1", &class("metallb.io/metallb")),
            (1, 1, 1),
            Some(
                "spec.loadBalancerClass metallb.io/metallb cannot be changed while a Service has type \
                 LoadBalancer",
            ),
        ),
        (annotated, (1, 1, 0), Some("leasehold.dev/addresses to keep them: web/a (10.0.0.1)")),
        (service("web", "a", "10.0.0.1", &class("example.com/x")), (0, 0, 0), None),
        (service("web", "a", "10.0.0.1", &class("leasehold.dev/lease")), (0, 0, 0), None),
    ] {
        let outcome = moved_objects(&[pools.as_slice(), std::slice::from_ref(&service)].concat());
        let Tally { services, addresses, held } = outcome.tally;
        assert_eq!((services, addresses, held), counted, "{service}");
        let notes = outcome.notes.join("\n");
        assert!(note.map_or(notes.is_empty(), |note| notes.contains(note)), "{service}: {notes}");
    }
}

#[test]
fn a_service_that_asks_for_a_pool_by_a_name_that_another_has_here_is_told_what_to_write() {
    let mut other = pool("lan", &json!({"addresses": ["198.51.100.0/24"]}));
    other["metadata"]["namespace"] = json!("test");
    let pools = [pool("lan", &json!({"addresses": ["192.0.2.0/24"]})), other];
    for (annotations, ip, note) in [
        (json!({}), "198.51.100.1", None),
        (json!({"metallb.io/address-pool": "lan"}), "192.0.2.1", None),
        (json!({"metallb.io/address-pool": "lan-test"}), "198.51.100.1", None),
        (json!({"metallb.io/address-pool": "gone"}), "198.51.100.1", None),
        (
            json!({"metallb.io/address-pool": "lan"}),
            "198.51.100.1",
            Some(
                "Service web/a requests pool lan with metallb.io/address-pool, but has 198.51.100.1 \
                 of the converted pool lan-test: before step 3, run kubectl annotate service -n web a \
                 leasehold.dev/address-pool=lan-test; otherwise Leasehold",
            ),
        ),
        (
            json!({"metallb.universe.tf/address-pool": "lan"}),
            "198.51.100.1",
            Some("requests pool lan with metallb.universe.tf/address-pool"),
        ),
        (
            json!({"metallb.io/address-pool": "lan", "leasehold.dev/address-pool": "lan-test"}),
            "198.51.100.1",
            None,
        ),
    ] {
        let mut service = service("web", "a", ip, &json!({}));
        service["metadata"]["annotations"] = annotations.clone();
        let notes = moved_objects(&[pools.as_slice(), &[service]].concat()).notes;
        let about = notes.iter().find(|note| note.starts_with("Service "));
        let as_expected = match (about, note) {
            (Some(about), Some(note)) => about.contains(note),
            (about, note) => about.is_none() && note.is_none(),
        };
        assert!(as_expected, "{annotations}: {notes:?}");
    }
}

#[test]
fn addresses_that_namespaces_share_make_their_pool_allow_it() {
    let pools = [
        pool("lan", &json!({"addresses": ["192.0.2.0/24"]})),
        pool("other", &json!({"addresses": ["198.51.100.0/24"]})),
    ];
    let cluster = json!({});
    let local = json!({"externalTrafficPolicy": "Local"});
    let run = |services: &[Value]| moved_objects(&[pools.as_slice(), services].concat());
    let sharing = |outcome: &Outcome| {
        outcome.pools.iter().map(|pool| pool.object.spec.sharing).collect::<Vec<_>>()
    };
    let (same, any) = (Sharing::SameNamespace, Sharing::AnyNamespace);

    let within = [
        service("web", "a", "192.0.2.1", &cluster),
        service("web", "b", "192.0.2.1", &cluster),
        service("dns", "c", "192.0.2.2", &cluster),
    ];
    assert_eq!(sharing(&run(&within)), [same, same]);
    let across = [
        service("web", "a", "192.0.2.1", &cluster),
        service("dns", "b", "192.0.2.1", &cluster),
        service("web", "c", "198.51.100.1", &cluster),
    ];
    let outcome = run(&across);
    assert_eq!(sharing(&outcome), [any, same]);
    assert!(outcome.pools[0].notes[0].ends_with("192.0.2.1 (web/a and dns/b)"));
    assert!(outcome.notes.is_empty(), "{:?}", outcome.notes);
    let local =
        [service("web", "a", "192.0.2.1", &local), service("dns", "b", "192.0.2.1", &local)];
    let outcome = run(&local);
    assert!(outcome.notes[0].contains("externalTrafficPolicy: Local"), "{:?}", outcome.notes);
}

#[test]
fn what_is_not_moved_is_said() {
    let object = |group: &str, kind: &str| json!({"apiVersion": group, "kind": kind, "metadata": {"namespace": "n", "name": "x"}});
    for (objects, note) in [
        (vec![object("metallb.io/v1beta2", "BGPPeer")], "BGPPeer n/x is not moved: Leasehold"),
        (vec![object("metallb.io/v1beta1", "Community")], "does not support BGP"),
        (vec![object("metallb.io/v1beta1", "BFDProfile")], "does not support BGP"),
        (
            vec![object("metallb.io/v1beta1", "BGPAdvertisement")],
            "BGPAdvertisement n/x is not moved: Leasehold announces addresses with ARP and NDP",
        ),
        (vec![object("metallb.io/v1beta1", "AddressPool")], "write it as IPAddressPool"),
        (vec![object("metallb.io/v1beta1", "ServiceL2Status")], "nothing in it is moved"),
        (vec![object("leasehold.dev/v1alpha1", "IPAddressPool")], "Leasehold's own already"),
        (vec![object("v1", "ConfigMap")], "ConfigMap n/x is not moved: it is not of MetalLB"),
        (vec![pool("lan", &json!({"addresses": ["web"]}))], "none of its addresses is valid"),
        (
            vec![pool("lan", &json!({"addresses": ["192.0.2.0/24"]})); 2],
            "IPAddressPool metallb-system/lan was read twice",
        ),
        (vec![service("a", "b", "192.0.2.1", &json!({"type": "NodePort"}))], "no Service of type"),
    ] {
        let outcome = moved_objects(&objects);
        let notes = outcome.notes.join("\n");
        assert!(notes.contains(note), "{notes}");
        assert!(print::summary(&outcome).contains(note));
    }
}

#[test]
fn input_that_cannot_be_read_says_where_and_why() {
    for (text, says) in [
        ("a: b\n---\n- {", "test.yaml: document 1: is not a Kubernetes object"),
        ("---\nkind: List\napiVersion: v1\n---\n{", "test.yaml: document 2 is not YAML"),
        (
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: lan}\nspec: {addresses: 7}",
            "test.yaml: document 1: IPAddressPool lan cannot be read: invalid type: integer `7`, \
             expected a sequence",
        ),
        (
            "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {}\nspec: {}",
            "IPAddressPool (without a name) cannot be read: missing field `name`",
        ),
    ] {
        let mut inputs = Inputs::default();
        let error = read::documents(Path::new("test.yaml"), text, &mut inputs).unwrap_err();
        let error = leasehold::api::causes(&error);
        assert!(error.starts_with(says) || error.contains(says), "{error}");
    }
    let missing = read::files(&["/nowhere/pools.yaml".into()]).unwrap_err();
    assert_eq!(missing.to_string(), "cannot read /nowhere/pools.yaml");
}

#[test]
fn lists_and_what_files_leave_out_are_read() {
    let outcome = moved(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPoolList\nitems:\n\
         - {metadata: {name: a, labels: null}, spec: {addresses: [192.0.2.0/24], serviceAllocation: null}}\n\
         ---\n# nothing\n---\n\
         apiVersion: v1\nkind: ServiceList\nitems:\n\
         - {metadata: {name: s, namespace: n}, spec: {type: LoadBalancer}, \
            status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {hostname: web}]}}}\n\
         ---\napiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: b, namespace: m}\nspec:\n",
    );
    assert_eq!(outcome.pools.len(), 1);
    assert_eq!(outcome.policies[0].object.spec.ip_address_pools, Vec::<String>::new());
    assert_eq!(outcome.tally, Tally { services: 1, addresses: 1, held: 1 });
}

#[test]
fn notes_stay_comments_and_on_one_line() {
    let text = "\u{1b}[31mevil\napiVersion: v1\u{2028}kind: Secret\u{85}x";
    let outcome = moved_objects(&[
        pool("lan", &json!({"addresses": ["192.0.2.0/24", text]})),
        json!({"apiVersion": "v1", "kind": text, "metadata": {"name": text}}),
    ]);
    let yaml = print::yaml(&outcome).unwrap();
    assert!(!yaml.contains('\u{1b}'), "{yaml}");
    assert!(yaml.lines().all(|line| line.chars().count() <= 96), "{yaml}");
    assert_eq!(print::summary(&outcome).lines().count(), 5);
}
