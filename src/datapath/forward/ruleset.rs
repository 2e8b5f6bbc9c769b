//! A table, its sets, chains and rules as netlink messages.
//!
//! ```text
//! table ip leasehold-forward {
//!   set addresses { type ipv4_addr; flags timeout }
//!   set owned     { type ipv4_addr; flags timeout }
//!   map former   { type ipv4_addr : ipv4_addr . iface_index; flags timeout }
//!   set later    { type ipv4_addr . ether_addr; flags timeout }
//!   set others   { type ipv4_addr . ether_addr; flags timeout }
//!   set flowing  { type ipv4_addr; flags timeout }
//!   set fresh    { type ipv4_addr; flags timeout }
//!   set speakers { type ether_addr }
//!   set flows    { type ipv4_addr . inet_service . ipv4_addr . inet_service
//!                  flags dynamic, timeout; timeout 2m; size 65536 }
//!   chain prerouting {
//!     type filter hook prerouting priority mangle; policy accept;
//!     ip daddr @addresses goto moved
//!   }
//!   chain moved {
//!     ip ttl < 2 accept
//!     ct state established,related accept
//!     ip daddr . ether saddr @later goto onward
//!     ip daddr . ether saddr @others goto stale
//!     ether saddr @speakers counter accept
//!     ip daddr @owned goto onward
//!     goto stale
//!   }
//!   chain stale {
//!     tcp flags & (syn | ack | rst) == syn accept
//!     meta l4proto tcp counter drop
//!   }
//!   chain onward {
//!     tcp flags & (syn | ack | rst) == syn accept
//!     meta l4proto tcp counter dup to ip daddr map @former drop
//!     meta l4proto udp ip daddr @flowing ip saddr . udp sport . ip daddr . udp dport @flows update @flows { … }
//!       counter dup to ip daddr map @former drop
//!     meta l4proto udp ip daddr @fresh update @flows { ip saddr . udp sport . ip daddr . udp dport }
//!       counter dup to ip daddr map @former drop
//!     icmp type { destination-unreachable, time-exceeded, parameter-problem }
//!       counter dup to ip daddr map @former drop
//!   }
//! }
//! ```
//!
//! and the same in a table of the family `ip6`: in those of the family `inet` there is no `dup`. It decides after connection
//! tracking (priority -200), which has to say which packets are of a known connection, and before destination NAT (-100),
//! which would lead the others to a pod. What is dropped here leaves no tracked connection. A copy has passed one node
//! more; it leaves as it came, and the node that it goes to leads it to the pod by what it has tracked.
//!
//! Where an element has ended, so does the rule: the packet goes on here.

use netlink_packet_netfilter::nftables::{
    ChainAttribute, Expressions, InetHookNumber, NfTablesMessage, SetAttribute, SetDescription,
    SetFlags, Verdict,
};

use crate::datapath::packets::{address, begins, errors, is_error, known, last, send_on};
use crate::net::nft::expressions::{
    ACCEPT, DROP, FIRST, NETWORK_HEADER, TRANSPORT_HEADER, counter, is_protocol, lookup, map,
    payload, register, renew, sender, verdict,
};
use crate::net::nft::family::Family;
use crate::net::nft::rules::{
    self as nft, ETHER_ADDRESS, INET_SERVICE, INTERFACE_INDEX, Rule, is_awake, is_hooked, marks,
    marks_of,
};
use leasehold_core::desired::Protocol;

/// The name of the table of each family.
pub const TABLE: &str = "leasehold-forward";

/// The owner before of each address.
pub(super) const FORMER: &str = "former";
/// Those that have owned an address after this node.
pub(super) const LATER: &str = "later";
/// Those whose packets for an address are dropped: they have not heard of a move.
pub(super) const OTHERS: &str = "others";
/// The addresses.
pub(super) const ADDRESSES: &str = "addresses";
/// Those of them that this node has.
pub(super) const OWNED: &str = "owned";
/// The addresses whose unknown UDP flows are those of the owner before.
pub(super) const FRESH: &str = "fresh";
/// The other speakers.
pub(super) const SPEAKERS: &str = "speakers";
/// The addresses whose noted UDP flows are forwarded.
pub(super) const FLOWING: &str = "flowing";
/// The UDP flows of owners before.
const FLOWS: &str = "flows";

const BASE_CHAIN: &str = "prerouting";
/// The chain for what goes to an address that another node has owned before.
const MOVED: &str = "moved";
/// The chain for what comes from where a move was not heard of.
const STALE: &str = "stale";
/// The chain for what may go on to that node.
const ONWARD: &str = "onward";

/// `NF_IP_PRI_MANGLE` (`linux/netfilter_ipv4.h`), the same for IPv6.
const PRIORITY: i32 = -150;
/// `NFTA_SET_TIMEOUT`, in milliseconds: as long as connection tracking remembers a UDP flow with answers
/// (`nf_conntrack_udp_timeout_stream`).
const FLOW_TIMEOUT: u64 = 120_000;
/// The most UDP flows that are noted.
const FLOW_COUNT: u32 = 65_536;

/// Loads both addresses and ports.
fn flow(family: Family) -> [Expressions; 4] {
    let behind = family.words() + 1;
    [
        payload(NETWORK_HEADER, family.source(), family.length(), FIRST),
        payload(TRANSPORT_HEADER, 0, 2, register(family.words())),
        payload(NETWORK_HEADER, family.destination(), family.length(), register(behind)),
        payload(TRANSPORT_HEADER, 2, 2, register(behind + family.words())),
    ]
}

/// Sends the packet to the owner before, instead of here.
fn send_to_former(family: Family) -> Vec<Expressions> {
    let mut sent = vec![address(family), map(FORMER, FIRST)];
    sent.extend(send_on(family));
    sent
}

fn rules(family: Family) -> Vec<Rule> {
    let mut rules = Vec::new();
    let moved = [address(family), lookup(ADDRESSES), verdict(Verdict::Goto, Some(MOVED))];
    rules.push(Rule::new(BASE_CHAIN, "to an address that was on another node", moved));
    rules.extend(rules_of_moved(family));
    rules.extend(rules_of_stale());
    rules.extend(rules_of_onward(family));
    rules
}

fn rules_of_moved(family: Family) -> Vec<Rule> {
    let owner = |set, verdict| {
        let [kind, matches, load] = sender(register(family.words()));
        [kind, matches, load, address(family), lookup(set), verdict]
    };
    let later = owner(LATER, verdict(Verdict::Goto, Some(ONWARD)));
    let others = owner(OTHERS, verdict(Verdict::Goto, Some(STALE)));
    let mut speakers = sender(FIRST).to_vec();
    speakers.extend([lookup(SPEAKERS), counter(), verdict(ACCEPT, None)]);
    let here = [address(family), lookup(OWNED), verdict(Verdict::Goto, Some(ONWARD))];
    let elsewhere = [verdict(Verdict::Goto, Some(STALE))];
    vec![
        Rule::new(MOVED, "it may pass no other node", last(family)),
        Rule::new(MOVED, "of a connection of this node", known()),
        Rule::new(MOVED, "from an owner after this node", later),
        Rule::new(MOVED, "from an owner before this node, or its successor", others),
        Rule::new(MOVED, "from another speaker", speakers),
        Rule::new(MOVED, "from clients, for an address of this node", here),
        Rule::new(MOVED, "from clients, for one of another node", elsewhere),
    ]
}

fn rules_of_stale() -> [Rule; 2] {
    let mut goes_on = is_protocol(Protocol::Tcp.number()).to_vec();
    goes_on.extend([counter(), verdict(DROP, None)]);
    [
        Rule::new(STALE, "a connection begins", begins()),
        Rule::new(STALE, "of an open connection: it is sent again", goes_on),
    ]
}

fn rules_of_onward(family: Family) -> Vec<Rule> {
    let mut goes_on = is_protocol(Protocol::Tcp.number()).to_vec();
    goes_on.extend(send_to_former(family));
    let mut of_flow = is_protocol(Protocol::Udp.number()).to_vec();
    of_flow.extend([address(family), lookup(FLOWING)]);
    of_flow.extend(flow(family));
    of_flow.extend([lookup(FLOWS), renew(FLOWS)]);
    of_flow.extend(send_to_former(family));
    let mut fresh = is_protocol(Protocol::Udp.number()).to_vec();
    fresh.extend([address(family), lookup(FRESH)]);
    fresh.extend(flow(family));
    fresh.push(renew(FLOWS));
    fresh.extend(send_to_former(family));
    let errors = errors(family).iter().map(|kind| {
        let mut error = is_error(family, *kind).to_vec();
        error.extend(send_to_former(family));
        Rule::new(ONWARD, "an error", error)
    });
    [
        Rule::new(ONWARD, "a connection begins", begins()),
        Rule::new(ONWARD, "of an open connection", goes_on),
        Rule::new(ONWARD, "of a flow of the owner before", of_flow),
        Rule::new(ONWARD, "of a flow that may be older than the move", fresh),
    ]
    .into_iter()
    .chain(errors)
    .collect()
}

/// Everything in the table but elements, in the order in which it is made.
pub(super) fn skeleton(family: Family) -> Vec<(&'static str, NfTablesMessage)> {
    let address = (family.key_type(), family.length());
    let owner = ((address.0 << 6) | ETHER_ADDRESS, address.1 + 8);
    let socket = ((address.0 << 6) | INET_SERVICE, address.1 + 4);
    let flow = ((socket.0 << 12) | socket.0, socket.1 * 2);
    let target = vec![
        SetAttribute::DataType((address.0 << 6) | INTERFACE_INDEX),
        SetAttribute::DataLen(address.1 + 4),
    ];
    let noted = vec![
        SetAttribute::Timeout(FLOW_TIMEOUT),
        SetAttribute::Description(vec![SetDescription::Size(FLOW_COUNT)]),
    ];
    let (mortal, none) = (SetFlags::Timeout, SetFlags::empty());
    let sets = [
        nft::set(TABLE, FORMER, 1, address, mortal | SetFlags::Map, target),
        nft::set(TABLE, LATER, 2, owner, mortal, Vec::new()),
        nft::set(TABLE, OTHERS, 6, owner, mortal, Vec::new()),
        nft::set(TABLE, ADDRESSES, 7, address, mortal, Vec::new()),
        nft::set(TABLE, OWNED, 8, address, mortal, Vec::new()),
        nft::set(TABLE, FLOWING, 9, address, mortal, Vec::new()),
        nft::set(TABLE, FRESH, 3, address, mortal, Vec::new()),
        nft::set(TABLE, SPEAKERS, 4, (ETHER_ADDRESS, 6), none, Vec::new()),
        nft::set(TABLE, FLOWS, 5, flow, mortal | SetFlags::Eval, noted),
    ];
    let inner = [STALE, ONWARD, MOVED].map(|name| (name, Vec::new()));
    let chains = inner.into_iter().chain([(BASE_CHAIN, hook())]);
    let chains = chains.map(|(name, hook)| ("a chain", nft::chain(TABLE, name, hook)));
    let rules = rules(family).into_iter().map(|rule| ("a rule", rule.message(TABLE)));
    sets.map(|set| ("a set", set)).into_iter().chain(chains).chain(rules).collect()
}

/// The attributes that make a chain a base chain.
fn hook() -> Vec<ChainAttribute> {
    nft::hook("filter", InetHookNumber::PreRouting, PRIORITY)
}

/// The question for the base chain.
pub(super) fn chain_question() -> NfTablesMessage {
    nft::chain_question(TABLE, BASE_CHAIN)
}

/// Whether these answers are of a table as [`skeleton`] makes it.
pub(super) fn is_intact(
    family: Family,
    table: &NfTablesMessage,
    chain: Option<&NfTablesMessage>,
    rules: &[NfTablesMessage],
) -> bool {
    let is_base = |chain| is_hooked(chain, &hook());
    is_awake(table) && chain.is_some_and(is_base) && marks_of(rules) == marks(&self::rules(family))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_mark_of_a_rule_is_its_own() {
        for family in Family::ALL {
            let all = rules(family);
            let marks: BTreeSet<_> = all.iter().map(Rule::mark).collect();
            assert_eq!(marks.len(), all.len());
        }
    }
}
