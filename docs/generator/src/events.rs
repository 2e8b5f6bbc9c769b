//! The events.

use leasehold_crds::event::{Component, Reason};

use crate::markdown::{cell, code, table};

pub fn page() -> String {
    let mut page = "# Events\n\n\
        This page lists all events of Leasehold. `kubectl get events -A` shows them; the API server deletes \
        them after an hour by default. Logs, metrics, and Leases have each change, events are limited: see \
        [Diagnostics](../operations/diagnostics.md#events).\n\n"
        .to_owned();
    for (title, component) in [("Speaker", Component::Speaker), ("Operator", Component::Operator)] {
        let controller = code(component.controller());
        page.extend([
            "## ",
            title,
            "\n\nThe field `reportingController` is ",
            &controller,
            ".\n\n",
        ]);
        let entries = Reason::ALL.iter().map(|reason| reason.entry());
        let rows = entries.filter(|entry| entry.component == component).map(|entry| {
            [
                code(entry.reason),
                format!("{:?}", entry.type_),
                entry.object.to_owned(),
                cell(entry.meaning),
            ]
        });
        page.push_str(&table(["Reason", "Type", "Object", "Meaning"], rows));
    }
    page
}
