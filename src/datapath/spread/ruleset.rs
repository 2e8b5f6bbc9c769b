//! The tables, their sets, chains and rules as netlink messages.
//!
//! ```text
//! table netdev leasehold-spread {
//!   set speakers    { type ether_addr }
//!   set ports4      { type ipv4_addr . inet_proto . inet_service }
//!   map dispatched4 { type ipv4_addr . iface_index : verdict }
//!   chain asked4 {
//!     ip ttl < 2 accept
//!     ip daddr . meta l4proto . th dport @ports4 return
//!     icmp type { destination-unreachable, time-exceeded, parameter-problem }
//!       ip daddr . inner protocol . inner sport @ports4 return
//!     accept
//!   }
//!   chain kept4 {
//!     ether saddr @speakers accept
//!     meta pkttype != host accept
//!     fib daddr type != local accept
//!     ip frag-off & 0x3fff != 0 accept
//!     goto asked4
//!   }
//!   map to-0123456789abcdef { type mark : ipv4_addr . iface_index; flags constant }
//!   chain to-0123456789abcdef {
//!     jump kept4
//!     meta l4proto != icmp counter fwd ip to jhash ip saddr . th sport mod 1021 map @to-0123456789abcdef
//!     meta l4proto icmp    counter fwd ip to jhash inner daddr . inner dport mod 1021 map @to-0123456789abcdef
//!   }
//!   chain ingress-2 {
//!     type filter hook ingress device eth0 priority -150; policy accept;
//!     ether type ip ip daddr . iif vmap @dispatched4
//!   }
//! }
//! ```
//!
//! and the same for IPv6, in the same table: a packet for another node leaves this one before it is a packet of this one.
//! Nothing is forwarded of what a speaker sends: it has been forwarded. Nothing is forwarded for an address that the kernel
//! does not have: it removes those of a speaker that has ended after their lifetime, and with them ends what its rules do.
//!
//! ```text
//! table ip leasehold-spread {
//!   set speakers, set ports4, map dispatched4, chain asked4, chain kept4: as above, but for what kept4 asks of frames
//!   set addresses4  { type ipv4_addr }
//!   set heard       { type iface_index . mark . ether_addr; flags dynamic,timeout; timeout 12s; size 4096 }
//!   map chances4    { type ipv4_addr : verdict }
//!   chain to-0123456789abcdef {
//!     jump kept4
//!     meta l4proto != icmp counter dup to jhash ip saddr . th sport mod 1021 map @to-0123456789abcdef drop
//!     …
//!   }
//!   chain chance-0123456789abcdef {
//!     ct state established,related accept
//!     jump asked4
//!     iif 2 ether saddr != @speakers fib daddr type local
//!       counter dup to jhash … map @chance-0123456789abcdef-late drop
//!     tcp flags & (syn | ack | rst) == syn accept
//!     meta l4proto tcp jhash … . ether saddr @chance-0123456789abcdef-end accept
//!     meta l4proto tcp counter dup to jhash … . ether saddr map @chance-0123456789abcdef-back drop
//!     meta l4proto tcp ether saddr @speakers counter drop
//!     meta l4proto tcp fib daddr type != local counter drop                  (the owner)
//!     meta l4proto tcp counter dup to jhash … map @chance-0123456789abcdef-onward drop
//!     meta l4proto tcp counter drop                                          (other nodes)
//!     errors: as TCP, but accepted where that is dropped
//!   }
//!   chain slow {
//!     type filter hook prerouting priority raw; policy accept;
//!     ip daddr . iif vmap @dispatched4
//!   }
//!   chain chance {
//!     type filter hook prerouting priority mangle; policy accept;
//!     icmp type echo-reply icmp id 0x1ea5 ether saddr @speakers ip daddr @addresses4
//!       update @heard { iif . id and sequence . ether saddr } counter drop
//!     ip daddr vmap @chances4
//!   }
//!   chain guard {
//!     type filter hook forward priority -1; policy accept;
//!     ip daddr @addresses4 ether saddr @speakers counter drop
//!   }
//! }
//! ```
//!
//! and the same in a table of the family `ip6`. Here is decided what the other table leaves: fragments, which have been put
//! together before (priority -400), and everything where the kernel refuses that table.
//!
//! The second chance is after connection tracking (-200), which has to say which packets are of a known connection, and
//! before destination NAT (-100), which would lead the others to a pod. Its rule with `late` is for buckets that other nodes
//! have and the owner has had: only connection tracking knows which of their connections are still those of the owner. The
//! node that has such a bucket sends what it does not know to no owner: that has looked.
//!
//! What kube-proxy leaves as it is, for it has no rules yet, is routed to the owner, which would send it again: it ends in
//! the forward hook.
//!
//! No element has a lifetime: a node that has no speaker for a while goes on with what others send it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use leasehold_crds::names::InterfaceName;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, Expressions, InetHookNumber, MetaKey, NfTablesMessage, Operator, Register,
    SetAttribute, SetDescription, SetFlags, Verdict,
};

use crate::datapath::packets::{address, errors, is_error, last};
use crate::datapath::spread::chains::BY_BUCKET;
use crate::datapath::spread::plan::{DEVICE, Place, Table};
use crate::net::nft::expressions::{
    ACCEPT, DROP, FIRST, NETWORK_HEADER, TRANSPORT_HEADER, compare, compare_local,
    compare_recipient, counter, destination, fragment_header, is_framed, is_protocol, lookup, map,
    mask, meta, payload, register, renew, sender, verdict,
};
use crate::net::nft::family::Family;
use crate::net::nft::rules::{
    self as nft, ETHER_ADDRESS, INET_PROTO, INET_SERVICE, INTERFACE_INDEX, MARK, Mark, Rule,
    VERDICT,
};

/// The name of the tables.
pub const TABLE: &str = "leasehold-spread";

/// The other speakers.
pub(super) const SPEAKERS: &str = "speakers";

/// The ports of addresses.
pub(super) const fn ports(family: Family) -> &'static str {
    family.of_two("ports4", "ports6")
}

/// The chains for what clients send to an address by an interface.
pub(super) const fn dispatched(family: Family) -> &'static str {
    family.of_two("dispatched4", "dispatched6")
}

/// The addresses.
pub(super) const fn addresses(family: Family) -> &'static str {
    family.of_two("addresses4", "addresses6")
}

/// The chains for what is not known here.
pub(super) const fn chances(family: Family) -> &'static str {
    family.of_two("chances4", "chances6")
}

/// The chain that accepts what is not for a port of Services, nor an error of what came from one.
pub(super) const fn asked(family: Family) -> &'static str {
    family.of_two("asked4", "asked6")
}

/// The chain that accepts what is not sent to other nodes, whatever its bucket.
pub(super) const fn kept(family: Family) -> &'static str {
    family.of_two("kept4", "kept6")
}

/// The packets of other speakers that tell which of theirs come through.
pub(super) const HEARD: &str = "heard";

/// Their identifier.
pub(super) const TRIALS: u16 = 0x1ea5;

/// They are remembered for longer than two rounds, in milliseconds.
const HEARD_TIMEOUT: u64 = 12_000;

/// At most so many are: beyond, others of a segment are not heard.
const HEARD_COUNT: u32 = 4_096;

const SLOW: &str = "slow";
const CHANCE: &str = "chance";
const GUARD: &str = "guard";

// linux/netfilter_ipv4.h, the same for IPv6: NF_IP_PRI_RAW and NF_IP_PRI_MANGLE.
const RAW: i32 = -300;
const MANGLE: i32 = -150;
/// Before other filters (`NF_IP_PRI_FILTER`).
const BEFORE_FILTERS: i32 = -1;
/// Among the chains of a device: after those that drop early.
const INGRESS: i32 = -150;

/// The base chains, and their hooks; those of devices are made one by one.
fn hooks(place: Place) -> Vec<(&'static str, Vec<ChainAttribute>)> {
    use InetHookNumber::{Forward, PreRouting};
    match place {
        Place::Ingress => Vec::new(),
        Place::Routing(_) => vec![
            (SLOW, nft::hook("filter", PreRouting, RAW)),
            (CHANCE, nft::hook("filter", PreRouting, MANGLE)),
            (GUARD, nft::hook("filter", Forward, BEFORE_FILTERS)),
        ],
    }
}

/// Loads the address, the protocol and the port of this node of the packet that an error is about.
fn failed(family: Family) -> [Expressions; 3] {
    // Behind the header of the error.
    let inner = 8;
    let [protocol, port] = family.behind();
    [
        address(family),
        payload(TRANSPORT_HEADER, inner + family.content(), 1, protocol),
        payload(TRANSPORT_HEADER, inner + family.header_length(), 2, port),
    ]
}

fn rules_of_asked(family: Family) -> Vec<Rule> {
    let chain = asked(family);
    let back = || verdict(Verdict::Return, None);
    let mut rules = vec![Rule::new(chain, "it may pass no other node", last(family))];
    let mut port = destination(family).to_vec();
    port.extend([lookup(ports(family)), back()]);
    rules.push(Rule::new(chain, "to a port of Services", port));
    for kind in errors(family) {
        let mut error = is_error(family, *kind).to_vec();
        error.extend(failed(family));
        error.extend([lookup(ports(family)), back()]);
        rules.push(Rule::new(chain, "an error of what came from one", error));
    }
    rules.push(Rule::new(chain, "all else", [verdict(ACCEPT, None)]));
    rules
}

fn rules_of_kept(place: Place, family: Family) -> Vec<Rule> {
    let chain = kept(family);
    let accept = || verdict(ACCEPT, None);
    let mut speakers = sender(FIRST).to_vec();
    speakers.extend([lookup(SPEAKERS), accept()]);
    let mut rules = vec![Rule::new(chain, "it has been forwarded", speakers)];
    if place == Place::Ingress {
        let mut others = compare_recipient(Operator::NotEqual).to_vec();
        others.push(accept());
        rules.push(Rule::new(chain, "to another host", others));
    }
    let mut gone = compare_local(Operator::NotEqual).to_vec();
    gone.push(accept());
    rules.push(Rule::new(chain, "the address is gone", gone));
    if place == Place::Ingress {
        let mut fragments = fragments(family);
        fragments.push(accept());
        rules.push(Rule::new(chain, "a fragment", fragments));
    }
    rules.push(Rule::new(chain, "by its port", [verdict(Verdict::Goto, Some(asked(family)))]));
    rules
}

/// Ends the rule for what is no fragment.
fn fragments(family: Family) -> Vec<Expressions> {
    match family {
        Family::V4 => vec![
            payload(NETWORK_HEADER, 6, 2, FIRST),
            mask(&[0x3f, 0xff]),
            compare(Operator::NotEqual, &[0, 0]),
        ],
        Family::V6 => vec![fragment_header(0, 1)],
    }
}

/// Leads what comes in for an address by an interface on which it is dispatched to the chain of its nodes.
fn dispatch(family: Family) -> [Expressions; 3] {
    [
        address(family),
        meta(MetaKey::Iif, register(family.words())),
        map(dispatched(family), Register::Verdict),
    ]
}

fn rules(place: Place) -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in place.families() {
        rules.extend(rules_of_asked(family));
        rules.extend(rules_of_kept(place, family));
        if place == Place::Ingress {
            continue;
        }
        rules.push(Rule::new(SLOW, "from clients", dispatch(family)));
        rules.push(Rule::new(CHANCE, "of another speaker, to be told of", trials(family)));
        let chance = [address(family), map(chances(family), Register::Verdict)];
        rules.push(Rule::new(CHANCE, "to an address of several nodes", chance));
        let mut guard = vec![address(family), lookup(addresses(family))];
        guard.extend(sender(FIRST));
        guard.extend([lookup(SPEAKERS), counter(), verdict(DROP, None)]);
        rules.push(Rule::new(GUARD, "what is not translated does not go back", guard));
    }
    rules
}

/// Notes which packets of other speakers come in that they send for that.
fn trials(family: Family) -> Vec<Expressions> {
    // RFC 792; RFC 4443, section 4.2.
    let echo_reply = match family {
        Family::V4 => 0,
        Family::V6 => 129,
    };
    let mut rule = is_protocol(family.control()).to_vec();
    let equal = |bytes: &[u8]| compare(Operator::Equal, bytes);
    rule.extend([payload(TRANSPORT_HEADER, 0, 2, FIRST), equal(&[echo_reply, 0])]);
    rule.extend([payload(TRANSPORT_HEADER, 4, 2, FIRST), equal(&TRIALS.to_be_bytes())]);
    rule.extend(sender(FIRST));
    rule.push(lookup(SPEAKERS));
    rule.extend([address(family), lookup(addresses(family))]);
    rule.extend(sender(register(2)));
    rule.extend([payload(TRANSPORT_HEADER, 4, 4, register(1)), meta(MetaKey::Iif, FIRST)]);
    rule.extend([renew(HEARD), counter(), verdict(DROP, None)]);
    rule
}

/// The rules of the base chain of a device.
fn rules_of_device(chain: &str) -> Vec<Rule> {
    let rule = |family| {
        let mut framed = is_framed(family).to_vec();
        framed.extend(dispatch(family));
        Rule::new(chain, "from clients", framed)
    };
    Family::ALL.map(rule).into()
}

/// Everything in a table but its content, in the order in which it is made.
pub(super) fn skeleton(place: Place) -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    let mut number = 0;
    let mut set = |name, key, flags, more| {
        number += 1;
        messages.push(("a set", nft::set(TABLE, name, number, key, flags, more)));
    };
    let (none, to_chains) = (SetFlags::empty(), || vec![SetAttribute::DataType(VERDICT)]);
    set(SPEAKERS, (ETHER_ADDRESS, 6), none, Vec::new());
    if place != Place::Ingress {
        let heard = (((INTERFACE_INDEX << 6) | MARK) << 6 | ETHER_ADDRESS, 16);
        let noted = vec![
            SetAttribute::Timeout(HEARD_TIMEOUT),
            SetAttribute::Description(vec![SetDescription::Size(HEARD_COUNT)]),
        ];
        set(HEARD, heard, SetFlags::Timeout | SetFlags::Eval, noted);
    }
    for family in place.families() {
        let address = (family.key_type(), family.length());
        let port = (((address.0 << 6) | INET_PROTO) << 6 | INET_SERVICE, address.1 + 8);
        let by_interface = ((address.0 << 6) | INTERFACE_INDEX, address.1 + 4);
        set(ports(family), port, none, Vec::new());
        set(dispatched(family), by_interface, SetFlags::Map, to_chains());
        if place != Place::Ingress {
            set(addresses(family), address, none, Vec::new());
            set(chances(family), address, SetFlags::Map, to_chains());
        }
    }
    for family in place.families() {
        let inner = [asked(family), kept(family)];
        messages.extend(inner.map(|name| ("a chain", nft::chain(TABLE, name, Vec::new()))));
    }
    let base = hooks(place).into_iter();
    messages.extend(base.map(|(name, hook)| ("a chain", nft::chain(TABLE, name, hook))));
    messages.extend(rules(place).into_iter().map(|rule| ("a rule", rule.message(TABLE))));
    messages
}

/// Makes the base chain of a device.
pub(super) fn device(name: &str, device: &str) -> Vec<(&'static str, NfTablesMessage)> {
    let chain = ("a chain of a device", nft::chain(TABLE, name, nft::ingress(device, INGRESS)));
    let rules = rules_of_device(name).into_iter().map(|rule| ("a rule", rule.message(TABLE)));
    [chain].into_iter().chain(rules).collect()
}

/// The names of the base chains: those that the table always has, and those of devices that have rules.
pub(super) fn base_chains(place: Place, rules: &[NfTablesMessage]) -> Vec<String> {
    let fixed = hooks(place).into_iter().map(|(name, _)| name.to_owned());
    let mut devices: Vec<String> =
        nft::marks_of(rules).into_iter().map(|(chain, _)| chain).collect();
    devices.dedup();
    devices.retain(|name| name.starts_with(DEVICE));
    fixed.chain(devices).collect()
}

/// A table as these answers have it: the base chains by their names, the rules, and the sets.
pub(super) fn read(
    place: Place,
    answer: &NfTablesMessage,
    base: &BTreeMap<String, Option<NfTablesMessage>>,
    rules: &[NfTablesMessage],
    sets: &[NfTablesMessage],
) -> Table {
    let known = |name: &str| base.get(name).and_then(Option::as_ref);
    let is_hooked = |(name, hook): (&str, Vec<ChainAttribute>)| {
        known(name).is_some_and(|chain| nft::is_hooked(chain, &hook))
    };
    let hooked = hooks(place).into_iter().all(is_hooked);
    let mut table = Table::default();
    let mut others: Vec<Mark> = Vec::new();
    for marks in nft::marks_of(rules).chunk_by(|one, other| one.0 == other.0) {
        let Some((name, _)) = marks.first() else { continue };
        if name.starts_with(DEVICE) {
            let as_made = nft::marks(&rules_of_device(name)) == marks;
            let device = known(name).filter(|_| as_made).and_then(device_of);
            table.devices.insert(name.clone(), device);
        } else if BY_BUCKET.iter().any(|beginning| name.starts_with(beginning)) {
            table.chains.insert(name.clone(), mark(marks));
        } else {
            others.extend_from_slice(marks);
        }
    }
    table.intact = nft::is_awake(answer) && hooked && others == nft::marks(&self::rules(place));
    let of_chains = nft::names_of(sets)
        .filter(|name| BY_BUCKET.iter().any(|beginning| name.starts_with(beginning)));
    table.sets.extend(of_chains.map(str::to_owned));
    table
}

/// The mark of rules with these marks.
pub(super) fn mark<'a>(marks: impl IntoIterator<Item = &'a Mark>) -> u64 {
    let mut hasher = DefaultHasher::new();
    marks.into_iter().for_each(|mark| mark.hash(&mut hasher));
    hasher.finish()
}

/// The device of a base chain that is hooked there as it should be.
fn device_of(chain: &NfTablesMessage) -> Option<InterfaceName> {
    let device = nft::device_of(chain)?;
    nft::is_hooked(chain, &nft::ingress(device, INGRESS)).then(|| device.parse().ok())?
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use netlink_packet_netfilter::nftables::{Hook, TableAttribute, TableFlags};

    use super::*;

    /// The answers of the kernel about a table without addresses, but for a device.
    fn answers(
        place: Place,
    ) -> (NfTablesMessage, BTreeMap<String, Option<NfTablesMessage>>, Vec<NfTablesMessage>) {
        let made = skeleton(place).into_iter().chain(device("ingress-2", "eth0"));
        let (mut chains, mut rules) = (Vec::new(), Vec::new());
        for (_, message) in made {
            match &message {
                NfTablesMessage::NewChain(_) => chains.push(message),
                NfTablesMessage::NewRule(_) => rules.push(message),
                _ => {}
            }
        }
        let base = base_chains(place, &rules).into_iter().map(|name| {
            let chain = chains.iter().find(|chain| match chain {
                NfTablesMessage::NewChain(chain) => {
                    chain.attributes.contains(&ChainAttribute::Name(name.clone()))
                }
                _ => false,
            });
            (name, chain.cloned())
        });
        (NfTablesMessage::NewTable(nft::table(TABLE)), base.collect(), rules)
    }

    #[test]
    fn a_table_as_it_is_made_is_intact() {
        for place in Place::ALL {
            let (table, base, rules) = answers(place);
            let read = read(place, &table, &base, &rules, &[]);
            assert!(read.intact, "{place:?}");
            let device = ("ingress-2".to_owned(), Some("eth0".parse().unwrap()));
            assert_eq!(read.devices, [device].into());
            assert!(read.chains.is_empty() && read.sets.is_empty());
        }
    }

    #[test]
    fn a_table_that_somebody_changed_is_not() {
        for place in Place::ALL {
            let (table, base, rules) = answers(place);
            for number in 0..rules.len() - 2 {
                let mut fewer = rules.clone();
                fewer.remove(number);
                assert!(!read(place, &table, &base, &fewer, &[]).intact, "without rule {number}");
            }
            for (name, _) in hooks(place) {
                let mut less = base.clone();
                less.remove(name);
                assert!(!read(place, &table, &less, &rules, &[]).intact, "without {name}");
            }
            let mut dormant = table.clone();
            if let NfTablesMessage::NewTable(table) = &mut dormant {
                table.attributes.push(TableAttribute::Flags(TableFlags::Dormant));
            }
            assert!(!read(place, &dormant, &base, &rules, &[]).intact, "dormant");
        }
    }

    #[test]
    fn a_base_chain_of_a_device_that_somebody_changed_is_on_none() {
        let (table, base, rules) = answers(Place::Ingress);
        let on = |base: &BTreeMap<String, Option<NfTablesMessage>>, rules: &[NfTablesMessage]| {
            let read = read(Place::Ingress, &table, base, rules, &[]);
            assert!(read.intact);
            read.devices.into_values().next().flatten()
        };
        assert_eq!(on(&base, &rules[..rules.len() - 1]), None, "a rule is missing");
        assert_eq!(on(&BTreeMap::new(), &rules), None, "it is missing");
        let mut other = base.clone();
        for chain in other.values_mut().flatten() {
            let NfTablesMessage::NewChain(chain) = chain else { continue };
            for attribute in &mut chain.attributes {
                if let ChainAttribute::Hook(parts) = attribute {
                    parts.retain(|part| !matches!(part, Hook::Priority(_)));
                    parts.push(Hook::Priority(0));
                }
            }
        }
        assert_eq!(on(&other, &rules), None, "another priority");
    }

    #[test]
    fn the_mark_of_a_rule_is_its_own() {
        for place in Place::ALL {
            let mut all = rules(place);
            all.extend(rules_of_device("ingress-2"));
            let marks: BTreeSet<_> = all.iter().map(Rule::mark).collect();
            assert_eq!(marks.len(), all.len());
        }
    }
}
