//! Which claims govern which addresses of which Services.
//!
//! Two places say it. A Service does, by the annotation and the status that the operator writes: its
//! *record*. And the lease of a claim lists Services and addresses. Tools that replace a Service by a
//! manifest, or take off what the manifest does not say, remove records; nobody wishes anything by that. So
//! either place is enough:
//!
//! ```text
//! the claim lists the address and names the living Service ──► governed, whatever the record says
//! ... but the operator has withdrawn it                    ──► not governed, whatever the record says
//! only the record says it                                  ──► governed as long as the claim lists nothing, or
//!                                                              listed it until somebody edited the list
//! ```
//!
//! Whoever may edit a Service may write any claim on it. So a claim that lists nothing yet is believed to
//! govern an address only where nobody else is to have it by the claim's name: a Service counts for the nodes
//! and the policy of others' addresses no sooner than the operator has said so.
//!
//! What ends it is a word of the operator (`leasehold.dev/withdrawn-addresses`), the end of the Service, or
//! another type or class. All of this says what is asked for; whether anybody may serve it is said by
//! the claim alone.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use leasehold_crds::addresses::AddressSet;
use leasehold_crds::lease::{Claim, LeaseName};

/// The record of addresses and claims on a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Which object it is.
    uid: Box<str>,
    /// Which of the addresses in its status each claim on record governs.
    claims: Box<[(LeaseName, AddressSet)]>,
    /// Those in its status where no claim is on record.
    bare: AddressSet,
}

/// Addresses, by the claims that govern them.
pub type Governed<'a> = Cow<'a, [(LeaseName, AddressSet)]>;

impl Record {
    /// The record of a Service with this uid.
    pub fn new(uid: &str, claims: BTreeMap<LeaseName, AddressSet>, bare: AddressSet) -> Self {
        // One Service has few of them: a map would take several times the memory.
        Self { uid: uid.into(), claims: claims.into_iter().collect(), bare }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let claims = self.claims.iter().map(|(_, addresses)| addresses);
        claims.chain([&self.bare]).flatten().copied()
    }

    fn has(&self, address: IpAddr) -> bool {
        self.addresses().any(|it| it == address)
    }

    fn says(&self, claim: &LeaseName, listed: &AddressSet) -> bool {
        self.claims.iter().any(|(name, addresses)| name == claim && addresses == listed)
    }
}

/// The lists of the claim Leases, and their content before a user edited or deleted them.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    claims: BTreeMap<LeaseName, List>,
    /// The number of lists without a Lease.
    absent: usize,
}

/// The list of one claim. There may be ten thousand, and each is in the memory of its Lease already, so this type
/// has no room for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    /// The services.
    services: Box<[Named]>,
    /// The addresses that stand.
    standing: AddressSet,
    /// Those that the operator has withdrawn.
    withdrawn: AddressSet,
    /// The addresses that were on the list and are not any more, although the operator has not withdrawn them.
    lost: AddressSet,
    /// The pool.
    pool: Option<Box<str>>,
    /// There is no such lease any more.
    absent: bool,
}

/// A Service on the list of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    /// As `namespace/name`.
    name: Box<str>,
    /// Empty where it is not known.
    uid: Box<str>,
}

impl Named {
    fn all(claim: &Claim) -> impl Iterator<Item = (&str, &str)> {
        let known = claim.uids.len() == claim.services.len();
        let uids = claim.uids.iter().map(String::as_str).filter(move |_| known);
        claim.services.iter().map(String::as_str).zip(uids.chain(std::iter::repeat("")))
    }
}

impl Lists {
    /// Takes over what all claims list. What is missing has gone for good.
    pub fn replace<'a>(&mut self, all: impl Iterator<Item = (&'a LeaseName, &'a Claim)>) {
        let mut before = std::mem::take(self);
        for (name, claim) in all {
            let list = List::after(before.claims.remove(name), claim);
            self.claims.insert(name.clone(), list);
        }
    }

    /// Takes over what one claim lists now; whether that is news.
    pub fn note(&mut self, name: &LeaseName, claim: &Claim) -> bool {
        if self.claims.get(name).is_some_and(|known| known.is_of(claim)) {
            return false;
        }
        let before = self.claims.remove(name);
        self.absent -= usize::from(before.as_ref().is_some_and(|before| before.absent));
        let list = List::after(before.clone(), claim);
        let changed = before.as_ref() != Some(&list);
        self.claims.insert(name.clone(), list);
        changed
    }

    /// Notes that the Lease of this claim was deleted; returns whether that changes anything. `lives` says whether a
    /// Service exists.
    pub fn gone(&mut self, name: &LeaseName, lives: impl Fn(&str) -> bool) -> bool {
        let Some(list) = self.claims.get_mut(name).filter(|list| !list.absent) else {
            return false;
        };
        let standing = std::mem::take(&mut list.standing);
        list.lost.extend(standing);
        list.absent = true;
        self.absent += 1;
        self.forget(lives);
        true
    }

    /// Forgets what claims without a lease listed for Services that are gone, too.
    pub fn forget(&mut self, lives: impl Fn(&str) -> bool) {
        if self.absent == 0 {
            return;
        }
        self.claims.retain(|_, list| {
            let of_somebody = list.services.iter().any(|service| lives(&service.name));
            !list.absent || of_somebody && !list.lost.is_empty()
        });
        self.absent = self.claims.values().filter(|list| list.absent).count();
    }

    /// The pool that the addresses of this claim are from.
    pub(super) fn pool(&self, name: &LeaseName) -> Option<&str> {
        self.claims.get(name)?.pool.as_deref()
    }

    /// All addresses that lists have, where any has lost some: else nobody asks.
    fn standing(&self) -> BTreeSet<IpAddr> {
        if self.claims.values().all(|list| list.lost.is_empty()) {
            return BTreeSet::new();
        }
        self.claims.values().flat_map(|list| &list.standing).copied().collect()
    }

    /// Whether what this claim lists leaves room for a record that names it for `address`.
    fn admits(&self, name: &LeaseName, address: IpAddr) -> bool {
        self.claims.get(name).is_none_or(|list| list.admits(address))
    }

    /// Whether this claim lists `address`, or did until somebody edited the list.
    fn has(&self, name: &LeaseName, address: IpAddr) -> bool {
        self.claims.get(name).is_some_and(|list| list.has(address))
    }
}

impl List {
    /// The list after a change to `claim`; `before` is the list until then.
    fn after(before: Option<Self>, claim: &Claim) -> Self {
        let before = before.unwrap_or_default();
        let known = before.standing.iter().chain(&before.lost);
        let lost = known
            .filter(|ip| !claim.addresses.contains(ip) && !claim.withdrawn.contains(ip))
            .copied()
            .collect();
        let named = |(name, uid): (&str, &str)| Named { name: name.into(), uid: uid.into() };
        // The operator names a service on every list.
        let unnamed = claim.services.is_empty();
        let services =
            if unnamed { before.services } else { Named::all(claim).map(named).collect() };
        Self {
            services,
            standing: claim.standing().collect(),
            withdrawn: claim.withdrawn.clone(),
            lost,
            pool: claim.pool.as_deref().map(Into::into).or(before.pool),
            absent: false,
        }
    }

    /// Whether `claim` says nothing new: a renewal does not.
    fn is_of(&self, claim: &Claim) -> bool {
        let services = self.services.iter().map(|named| (&*named.name, &*named.uid));
        !self.absent
            && services.eq(Named::all(claim))
            && self.withdrawn == claim.withdrawn
            && self.pool.as_deref() == claim.pool.as_deref()
            && self.standing.iter().copied().eq(claim.standing())
    }

    /// Whether it is about the Service of this name and uid.
    fn names(&self, service: &str, uid: &str) -> bool {
        let named = self.services.iter().find(|named| *named.name == *service);
        named.is_some_and(|named| named.uid.is_empty() || *named.uid == *uid)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.standing.contains(&address) || self.lost.contains(&address)
    }

    fn admits(&self, address: IpAddr) -> bool {
        !self.withdrawn.contains(&address) && (self.standing.is_empty() || self.has(address))
    }

    /// The listed addresses, or the last ones if it lists none any more.
    fn latest(&self) -> &AddressSet {
        if self.standing.is_empty() { &self.lost } else { &self.standing }
    }
}

/// Which records are to be believed.
struct Belief<'a, S> {
    services: &'a BTreeMap<String, S>,
    lists: &'a Lists,
    /// All addresses on record, once anybody asks.
    recorded: OnceCell<BTreeSet<IpAddr>>,
}

impl<'a, S: AsRef<Record>> Belief<'a, S> {
    const fn of(services: &'a BTreeMap<String, S>, lists: &'a Lists) -> Self {
        Self { services, lists, recorded: OnceCell::new() }
    }

    /// Whether `claim` governs `address` of this Service because its record says so.
    fn confirms(&self, service: &str, record: &Record, claim: &LeaseName, address: IpAddr) -> bool {
        self.lists.admits(claim, address)
            && (self.lists.has(claim, address) || !self.doubts(service, record, claim, address))
    }

    /// Whether a claim that does not list `address` is to have others by its name: those of the Service
    /// that it is named after, unless that has left it or shares this one; or the one that it is named after.
    fn doubts(&self, service: &str, record: &Record, claim: &LeaseName, address: IpAddr) -> bool {
        if let Some((namespace, name)) = claim.service() {
            let namesake = format!("{namespace}/{name}");
            let other = self.services.get(&namesake).filter(|_| namesake != service);
            return other.map(AsRef::as_ref).is_some_and(|other| {
                let left = !other.claims.is_empty() && other.claims.iter().all(|it| it.0 != *claim);
                !other.has(address) && !left
            });
        }
        claim.address().is_some_and(|ip| !record.has(ip) && self.recorded().contains(&ip))
    }

    fn recorded(&self) -> &BTreeSet<IpAddr> {
        let all = || self.services.values().flat_map(|service| service.as_ref().addresses());
        self.recorded.get_or_init(|| all().collect())
    }
}

/// Which claims govern which addresses of each of these Services, by their names as `namespace/name`.
pub fn governed<'a, S: AsRef<Record>>(
    services: &'a BTreeMap<String, S>,
    lists: &'a Lists,
) -> BTreeMap<&'a str, Governed<'a>> {
    let belief = Belief::of(services, lists);
    let mut listed = unrecorded(&belief);
    let governed = |(name, service): (&'a String, &'a S)| {
        let record = service.as_ref();
        let (listed, recorded) = (listed.remove(name.as_str()), &record.claims);
        let confirmed = |(claim, addresses): &(LeaseName, AddressSet)| {
            addresses.iter().all(|address| belief.confirms(name, record, claim, *address))
        };
        if listed.is_none() && recorded.iter().all(confirmed) {
            return (name.as_str(), Cow::Borrowed(&**recorded));
        }
        let mut by_address: BTreeMap<IpAddr, &LeaseName> = BTreeMap::new();
        for (claim, addresses) in listed.into_iter().flatten() {
            for address in addresses {
                by_address.entry(address).or_insert(claim);
            }
        }
        for (claim, addresses) in recorded {
            for address in addresses {
                if belief.confirms(name, record, claim, *address) {
                    by_address.entry(*address).or_insert(claim);
                }
            }
        }
        let mut by_claim: BTreeMap<&LeaseName, Vec<IpAddr>> = BTreeMap::new();
        for (address, claim) in by_address {
            by_claim.entry(claim).or_default().push(address);
        }
        let by_claim = by_claim.into_iter();
        let split = by_claim.map(|(claim, all)| (claim.clone(), all.into_iter().collect()));
        (name.as_str(), Cow::Owned(split.collect()))
    };
    services.iter().map(governed).collect()
}

/// The lists of claims for each Service whose own record differs.
fn unrecorded<'a, S: AsRef<Record>>(
    belief: &Belief<'a, S>,
) -> BTreeMap<&'a str, Vec<(&'a LeaseName, AddressSet)>> {
    let Belief { services, lists, .. } = *belief;
    let mut unrecorded: BTreeMap<&str, Vec<(&LeaseName, AddressSet)>> = BTreeMap::new();
    let standing = lists.standing();
    for (name, list) in &lists.claims {
        let named = |service: &'a Named| {
            let record = services.get(&*service.name)?.as_ref();
            list.names(&service.name, &record.uid).then_some((&*service.name, record))
        };
        let living = || list.services.iter().filter_map(named);
        let latest = list.latest();
        for (service, record) in living().filter(|(_, record)| !record.says(name, latest)) {
            // Of several that share a claim each may have a part of what it lists.
            let some = latest.iter().any(|address| record.has(*address));
            let elsewhere = record.claims.iter().any(|(other, addresses)| {
                let confirmed = |address| belief.confirms(service, record, other, address);
                other != name && addresses.iter().copied().any(confirmed)
            });
            let of_nobody = |address: IpAddr| !living().any(|(_, other)| other.has(address));
            // It has one of each family: one that stands on its record is not to be replaced by a list.
            let another = |address: IpAddr| {
                let mut others = latest.iter().filter(|ip| ip.is_ipv4() == address.is_ipv4());
                others.any(|other| record.has(*other))
            };
            let lacks_all = !some && !elsewhere;
            let lacks = |address| !another(address) && (lacks_all || of_nobody(address));
            // What a list has lost another claim may have, by its list or on record.
            let taken = |address: &IpAddr| {
                standing.contains(address)
                    || record.claims.iter().any(|(it, all)| it != name && all.contains(address))
            };
            let lost = list.standing.is_empty();
            let its = |address: &&IpAddr| {
                (record.has(**address) || lacks(**address)) && !(lost && taken(address))
            };
            let addresses: AddressSet = latest.iter().filter(its).copied().collect();
            if !addresses.is_empty() {
                unrecorded.entry(service).or_default().push((name, addresses));
            }
        }
    }
    unrecorded
}

#[cfg(test)]
mod tests {
    use super::*;

    impl AsRef<Self> for Record {
        fn as_ref(&self) -> &Self {
            self
        }
    }

    fn addresses(text: &str) -> AddressSet {
        let address = |last: &str| match last.strip_prefix(':') {
            Some(last) => format!("2001:db8::{last}").parse().unwrap(),
            None => IpAddr::from([192, 0, 2, last.parse().unwrap()]),
        };
        text.split_whitespace().map(address).collect()
    }

    /// `claim: addresses; ...`, those of the claim `-` being where no claim is on record.
    fn record(uid: &str, text: &str) -> Record {
        let parts = text.split(';').filter_map(|part| part.split_once(':'));
        let mut claims: BTreeMap<String, AddressSet> =
            parts.map(|(claim, all)| (claim.trim().to_owned(), addresses(all))).collect();
        let bare = claims.remove("-").unwrap_or_default();
        let claims = claims.into_iter().map(|(claim, all)| (claim.parse().unwrap(), all));
        Record::new(uid, claims.collect(), bare)
    }

    /// `services: addresses - withdrawn`, a service with its uid as `web/a=1`.
    fn list(text: &str) -> Claim {
        let (services, rest) = text.split_once(':').unwrap();
        let (listed, withdrawn) = rest.split_once('-').unwrap_or((rest, ""));
        let named: Vec<_> =
            services.split_whitespace().map(|it| it.split_once('=').unwrap_or((it, ""))).collect();
        let uids = named.iter().map(|(_, uid)| (*uid).to_owned()).filter(|uid| !uid.is_empty());
        Claim {
            services: named.iter().map(|(name, _)| (*name).to_owned()).collect(),
            uids: uids.collect(),
            addresses: addresses(listed),
            withdrawn: addresses(withdrawn),
            ..Claim::default()
        }
    }

    fn noted(lists: &[(&str, &str)]) -> Lists {
        let mut noted = Lists::default();
        for (claim, text) in lists {
            let name = claim.parse().unwrap();
            if *text == "deleted" {
                assert!(noted.gone(&name, |_| true), "{claim}");
            } else {
                noted.note(&name, &list(text));
            }
        }
        noted
    }

    /// Of each service its claims and their addresses.
    fn told(services: &[(&str, &str)], lists: &Lists) -> Vec<String> {
        let services: BTreeMap<String, Record> =
            services.iter().map(|(name, text)| ((*name).to_owned(), record("1", text))).collect();
        let told = governed(&services, lists).into_iter().map(|(service, claims)| {
            let claims = claims.iter().map(|(claim, all)| {
                let short = |ip: &IpAddr| ip.to_string().replace("192.0.2.", "");
                let all = all.iter().map(|ip| short(ip).replace("2001:db8:", ""));
                format!("{claim}: {}", all.collect::<Vec<_>>().join(" "))
            });
            format!("{service} {}", claims.collect::<Vec<_>>().join("; "))
        });
        told.collect()
    }

    /// A name, what is on record of Services, the lists one after another, and what is governed.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)], &'a [&'a str]);

    fn assert_each(rows: &[Row<'_>]) {
        for (name, services, lists, expected) in rows {
            assert_eq!(told(services, &noted(lists)), *expected, "{name}");
        }
    }

    #[test]
    fn what_is_on_record_or_on_the_list_is_governed_unless_the_operator_withdrew_it() {
        let own = "192-0-2-2.address.leasehold";
        let rows: &[Row<'_>] = &[
            ("nothing is listed yet", &[("web/a", "web.a: 1")], &[], &["web/a web.a: 1"]),
            (
                "as listed",
                &[("web/a", "web.a: 1")],
                &[("web.a", "web/a=1: 1")],
                &["web/a web.a: 1"],
            ),
            (
                "annotation lost",
                &[("web/a", "-: 1")],
                &[("web.a", "web/a=1: 1")],
                &["web/a web.a: 1"],
            ),
            (
                "status lost",
                &[("web/a", "web.a:")],
                &[("web.a", "web/a=1: 1")],
                &["web/a web.a: 1"],
            ),
            ("all lost", &[("web/a", "")], &[("web.a", "web/a: 1")], &["web/a web.a: 1"]),
            (
                "one of two addresses lost",
                &[("web/a", "web.a: 1")],
                &[("web.a", "web/a=1: 1 :2")],
                &["web/a web.a: 1 :2"],
            ),
            (
                "another address of a family that it has",
                &[("web/a", "web.a: 1")],
                &[("web.a", "web/a=1: 1 2")],
                &["web/a web.a: 1"],
            ),
            (
                "the claims of single addresses lost",
                &[("web/a", "web.a: 1 2")],
                &[("web.a", "web/a=1: 1"), (own, "web/a=1: 2")],
                &["web/a 192-0-2-2.address.leasehold: 2; web.a: 1"],
            ),
            (
                "another Service of the same name",
                &[("web/a", "")],
                &[("web.a", "web/a=2: 1")],
                &["web/a "],
            ),
            ("withdrawn", &[("web/a", "")], &[("web.a", "web/a=1: 1 - 1")], &["web/a "]),
            (
                "withdrawn, and on record still",
                &[("web/a", "web.a: 1 2")],
                &[("web.a", "web/a=1: 1 2 - 1")],
                &["web/a web.a: 2"],
            ),
            (
                "withdrawn, and taken off",
                &[("web/a", "")],
                &[("web.a", "web/a=1: 1"), ("web.a", "web/a=1: 1 - 1"), ("web.a", "web/a=1:")],
                &["web/a "],
            ),
            (
                "what others write to the status",
                &[("web/a", "web.a: 8 9")],
                &[("web.a", "web/a=1: 1")],
                &["web/a web.a: 1"],
            ),
        ];
        assert_each(rows);
    }

    #[test]
    fn of_several_claims_each_governs_what_it_lists_and_what_vanished_is_governed_still() {
        let rows: &[Row<'_>] = &[
            (
                "the claim of another",
                &[("web/a", "web.b: 1"), ("web/b", "web.b: 2")],
                &[("web.a", "web/a=1: 1"), ("web.b", "web/b=1: 2")],
                &["web/a web.a: 1", "web/b web.b: 2"],
            ),
            (
                "the claim of another, and nothing listed for it",
                &[("web/a", "web.b: 1"), ("web/b", "web.b: 2")],
                &[("web.b", "web/b=1: 2")],
                &["web/a ", "web/b web.b: 2"],
            ),
            (
                "one has just joined another",
                &[("web/a", "web.a: 1"), ("web/b", "web.a: 1")],
                &[("web.a", "web/a=1: 1")],
                &["web/a web.a: 1", "web/b web.a: 1"],
            ),
            (
                "each has a part of what they share",
                &[("web/a", "web.a: 1 2"), ("web/b", "web.a: 1")],
                &[("web.a", "web/a=1 web/b=1: 1 2")],
                &["web/a web.a: 1 2", "web/b web.a: 1"],
            ),
            (
                "one of those that share has lost everything",
                &[("web/a", ""), ("web/b", "web.a: 1")],
                &[("web.a", "web/a=1 web/b=1: 1")],
                &["web/a web.a: 1", "web/b web.a: 1"],
            ),
            (
                "one has left the other",
                &[("web/a", "web.a: 1"), ("web/b", "web.b: 2")],
                &[("web.a", "web/a=1 web/b=1: 1"), ("web.b", "web/b=1: 2")],
                &["web/a web.a: 1", "web/b web.b: 2"],
            ),
            (
                "the list was emptied, too",
                &[("web/a", "-: 1")],
                &[("web.a", "web/a=1: 1"), ("web.a", ":")],
                &["web/a web.a: 1"],
            ),
            (
                "the lease was deleted, too",
                &[("web/a", "")],
                &[("web.a", "web/a=1: 1"), ("web.a", "deleted")],
                &["web/a web.a: 1"],
            ),
            (
                "and made again by its holder",
                &[("web/a", "")],
                &[("web.a", "web/a=1: 1"), ("web.a", "deleted"), ("web.a", "web/a=1:")],
                &["web/a web.a: 1"],
            ),
            (
                "the lease was deleted, and another claim is on record",
                &[("web/a", "web.b: 1")],
                &[("web.a", "web/a=1: 1"), ("web.a", "deleted")],
                &["web/a web.b: 1"],
            ),
            (
                "the lease was deleted, and another claim lists it",
                &[("web/a", ""), ("web/b", "")],
                &[("web.a", "web/a=1: 1"), ("web.a", "deleted"), ("web.b", "web/b=1: 1")],
                &["web/a ", "web/b web.b: 1"],
            ),
            (
                "a part of the list is gone, and on record",
                &[("web/a", "web.a: 1 2")],
                &[("web.a", "web/a=1: 1 2"), ("web.a", "web/a=1: 1")],
                &["web/a web.a: 1 2"],
            ),
        ];
        assert_each(rows);
    }

    #[test]
    fn a_renewal_is_no_news_and_what_nobody_needs_is_forgotten() {
        let name: LeaseName = "web.a".parse().unwrap();
        let mut lists = noted(&[("web.a", "web/a=1: 1")]);
        assert!(!lists.note(&name, &list("web/a=1: 1")));
        assert!(lists.note(&name, &list("web/a=1: 1 - 1")));
        assert!(lists.note(&name, &list("web/a=1: 1")));
        assert!(lists.gone(&name, |_| true));
        assert_eq!(told(&[("web/a", "")], &lists), ["web/a web.a: 1"]);
        lists.forget(|service| service == "web/a");
        assert_eq!(lists.claims.len(), 1);
        lists.forget(|_| false);
        assert!(lists.claims.is_empty());

        // What is missing from a list is gone for good.
        let mut lists = noted(&[("web.a", "web/a=1: 1"), ("web.b", "web/b=1: 2")]);
        let (name, kept) = ("web.b".parse().unwrap(), list("web/b=1: 2"));
        lists.replace([(&name, &kept)].into_iter());
        assert_eq!(told(&[("web/a", ""), ("web/b", "")], &lists), ["web/a ", "web/b web.b: 2"]);
    }
}
