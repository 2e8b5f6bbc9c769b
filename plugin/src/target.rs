//! The Services and nodes that people name.

use std::net::IpAddr;

use leasehold_core::explain::World;
use leasehold_crds::lease::LeaseName;
use leasehold_crds::names::NodeName;

use super::error::PluginError;

/// A Service as people name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    /// Its name, as `namespace/name`.
    pub(super) service: String,
    /// The address by which it was named.
    pub(super) address: Option<IpAddr>,
}

/// The Service that `text` names: `name` in `namespace`, `namespace/name`, or an address.
pub(super) fn service(world: &World, namespace: &str, text: &str) -> Result<Named, PluginError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let has = |it: &(&String, &_)| -> bool {
            let (_, row): &(&String, &leasehold_core::explain::ServiceRow) = it;
            row.addresses.contains(&address)
        };
        // One that is not ours may have the address written into its status as well.
        let mut having: Vec<_> = world.services.iter().filter(has).collect();
        having.sort_by_key(|(_, row)| !row.ours);
        let Some((name, _)) = having.first() else {
            let kind = "Service with the address";
            return Err(PluginError::Unknown { kind, name: text.to_owned(), nearest: None });
        };
        return Ok(Named { service: (*name).clone(), address: Some(address) });
    }
    let name = if text.contains('/') { text.to_owned() } else { format!("{namespace}/{text}") };
    if world.services.contains_key(&name) {
        return Ok(Named { service: name, address: None });
    }
    let short = name.rsplit('/').next().unwrap_or_default();
    let elsewhere = world
        .services
        .iter()
        .find(|(other, row)| row.ours && other.rsplit('/').next() == Some(short))
        .map(|(other, _)| other.clone());
    let all = world.services.keys().map(String::as_str);
    let nearest = elsewhere.or_else(|| nearest(&name, all).map(str::to_owned));
    Err(PluginError::Unknown { kind: "Service", name, nearest })
}

/// The node that `text` names.
pub(super) fn node(world: &World, text: &str) -> Result<NodeName, PluginError> {
    let known = |name: &NodeName| world.snapshot.nodes.contains_key(name);
    if let Some(name) = text.parse().ok().filter(known) {
        return Ok(name);
    }
    let nearest = nearest(text, world.snapshot.nodes.keys().map(NodeName::as_str));
    let nearest = nearest.map(str::to_owned);
    Err(PluginError::Unknown { kind: "node", name: text.to_owned(), nearest })
}

/// The claim that is meant where a Service is named for a move.
pub(super) fn claim(world: &World, named: &Named) -> Result<LeaseName, PluginError> {
    let Some(row) = world.services.get(&named.service) else {
        let kind = "Service";
        let (name, nearest) = (named.service.clone(), None);
        return Err(PluginError::Unknown { kind, name, nearest });
    };
    let of_address = || {
        let address = LeaseName::address_claim(named.address?);
        row.claims.get(&address).or_else(|| row.claims.iter().find(|it| it.service().is_some()))
    };
    let mut claims = row.claims.iter();
    match (of_address(), claims.next(), claims.next()) {
        (Some(claim), _, _) | (None, Some(claim), None) => Ok(claim.clone()),
        (None, None, _) => Err(PluginError::Usage(format!(
            "{} has no address: `kubectl leasehold explain {0}` gives the reason",
            named.service
        ))),
        (None, Some(_), Some(_)) => {
            let addresses: Vec<_> = row.addresses.iter().map(ToString::to_string).collect();
            Err(PluginError::Usage(format!(
                "the addresses of {} have separate owners: specify one of {}",
                named.service,
                addresses.join(", ")
            )))
        }
    }
}

/// The name that is meant, perhaps: few edits away.
fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.len() / 4).clamp(1, 4);
    let near = all.map(|other| (distance(name, other), other)).filter(|(far, _)| *far <= most);
    near.min().map(|(_, other)| other)
}

/// The number of letters to insert, remove or replace (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut next = vec![line + 1];
        for ((before, both), same) in row.iter().skip(1).zip(&row).zip(&other) {
            let left = next.last().copied().unwrap_or(line) + 1;
            next.push(left.min(before + 1).min(both + usize::from(*same != letter)));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use leasehold_core::explain::ServiceRow;

    use super::*;

    fn world() -> World {
        let mut world = World::default();
        for (name, addresses, claims) in [
            ("web/shop", &["192.0.2.1"][..], &["web.shop"][..]),
            (
                "web/dual",
                &["192.0.2.2", "2001:db8::2"],
                &["web.dual", "2001-db8-0-0-0-0-0-2.address.leasehold"],
            ),
            ("web/waits", &[], &[]),
        ] {
            let row = ServiceRow {
                ours: true,
                addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
                claims: claims.iter().map(|name| name.parse().unwrap()).collect(),
                ..ServiceRow::default()
            };
            world.services.insert(name.to_owned(), row);
        }
        world
    }

    #[test]
    fn a_service_is_named_by_name_with_and_without_namespace_and_by_address() {
        for (text, expected) in [
            ("shop", Ok("web/shop")),
            ("web/shop", Ok("web/shop")),
            ("192.0.2.1", Ok("web/shop")),
            ("2001:db8::2", Ok("web/dual")),
            ("192.0.2.9", Err("Service with the address 192.0.2.9 does not exist")),
            ("shpo", Err("Service web/shpo does not exist: did you mean web/shop?")),
            ("other/shop", Err("Service other/shop does not exist: did you mean web/shop?")),
            ("nothing-like-it", Err("Service web/nothing-like-it does not exist")),
        ] {
            let read = service(&world(), "web", text);
            let read = read.map(|it| it.service).map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn the_claim_of_a_service_is_plain_or_an_address_has_to_say_which() {
        for (text, expected) in [
            ("shop", Ok("web.shop")),
            ("192.0.2.2", Ok("web.dual")),
            ("2001:db8::2", Ok("2001-db8-0-0-0-0-0-2.address.leasehold")),
            (
                "dual",
                Err("the addresses of web/dual have separate owners: specify one of 192.0.2.2, \
                     2001:db8::2"),
            ),
            (
                "waits",
                Err("web/waits has no address: `kubectl leasehold explain web/waits` gives the \
                     reason"),
            ),
        ] {
            let named = service(&world(), "web", text).unwrap();
            let read = claim(&world(), &named);
            let read = read.map(|it| it.to_string()).map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    #[test]
    fn the_distance_counts_edits() {
        for (one, other, edits) in [
            ("", "", 0),
            ("node-1", "node-1", 0),
            ("node1", "node-1", 1),
            ("ab", "ba", 2),
            ("", "ab", 2),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
        }
    }
}
