//! Annotations, labels and conditions.

use leasehold_crds::annotation::{Bearer, Entry};
use leasehold_crds::label::LABELS;
use leasehold_crds::lease::{CLAIM_NAMESPACE, SESSION_NAMESPACE, annotation};
use leasehold_crds::{policy, pool, service};
use leasehold_operator::reconcile::service::request::REQUESTS;

use crate::markdown::{cell, code, codes, table};

pub fn page() -> String {
    let mut page = "# Annotations, labels, and conditions\n\n\
        This page lists all annotations, labels, and conditions that Leasehold reads or writes, with their \
        writers. For their use, see [Services](../configuration/services.md) and \
        [Moves](../usage/moves.md).\n\n"
        .to_owned();
    let mut section = |title: &str, about: &str, table: String| {
        page.extend(["## ", title, "\n\n", about, "\n\n", &table]);
    };
    section(
        "Annotations on Services",
        "Leasehold restores annotations of the operator that another client changes.",
        entries("Annotation", service::ANNOTATIONS, Bearer::Service),
    );
    section(
        "Annotations of MetalLB on Services",
        "The operator also reads these annotations. Of several with the same meaning, the first one of a row \
         that is not empty takes precedence.",
        table(
            ["Annotation", "Also read"],
            REQUESTS.iter().filter_map(|places| {
                let (own, others) = places.split_first()?;
                Some([code(own), codes(others.iter().copied())])
            }),
        ),
    );
    section(
        "Annotations on claim Leases",
        &format!("Claim Leases are in namespace `{CLAIM_NAMESPACE}`."),
        entries("Annotation", annotation::ANNOTATIONS, Bearer::Claim),
    );
    section(
        "Annotations on session Leases",
        &format!("Session Leases are in namespace `{SESSION_NAMESPACE}`."),
        entries("Annotation", annotation::ANNOTATIONS, Bearer::Session),
    );
    section(
        "Annotations on the election Lease",
        &format!(
            "The Lease `leasehold-operator` in namespace `{CLAIM_NAMESPACE}` elects the active replica."
        ),
        entries("Annotation", annotation::ANNOTATIONS, Bearer::Election),
    );
    section(
        "Labels",
        "Leasehold writes no labels on Services, Nodes, or Leases. Selectors of pools and policies match any label; these have \
         an effect of their own:",
        table(
            ["Label", "Object", "Written by", "Value", "Meaning"],
            LABELS.iter().flat_map(|label| {
                label.on.iter().map(|on| {
                    let [key, writer, format, meaning] = row(label);
                    [key, format!("{on:?}"), writer, format, meaning]
                })
            }),
        ),
    );
    let conditions: [&[_]; 3] = [&service::CONDITIONS, &pool::CONDITIONS, &policy::CONDITIONS];
    section(
        "Conditions",
        "The operator writes all conditions. Reasons are in [Services](../configuration/services.md#status), \
         [Address pools](../configuration/pools.md), and \
         [Announcement policies](../configuration/policies.md).",
        table(
            ["Type", "Object", "Meaning of `True`"],
            conditions.into_iter().flatten().map(|condition| {
                [code(condition.type_), condition.object.to_owned(), cell(condition.meaning)]
            }),
        ),
    );
    page
}

fn row(entry: &Entry) -> [String; 4] {
    [code(entry.key), cell(entry.writer), cell(entry.format), cell(entry.meaning)]
}

fn entries(heading: &str, entries: &[Entry], on: Bearer) -> String {
    let rows = entries.iter().filter(|entry| entry.on.contains(&on)).map(row);
    table([heading, "Written by", "Value", "Meaning"], rows)
}
