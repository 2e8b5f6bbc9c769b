//! The table, its maps, chains and rules as netlink messages.
//!
//! ```text
//! table inet leasehold-detour {
//!   map ports4    { type ipv4_addr . inet_proto . inet_service : verdict; flags timeout }
//!   set detoured4 { type ipv4_addr . inet_proto . inet_service; flags timeout }
//!   set lost4     { type ipv4_addr . inet_proto . inet_service; flags timeout }
//!   set affine4   { type ipv4_addr . inet_proto . inet_service; flags timeout }
//!   map clients4  { type ipv4_addr . ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
//!                   flags dynamic, timeout; timeout 3h; size 65536 }
//!   chain to-0123456789abcdef {
//!     dnat ip to jhash ip saddr . th sport mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.1.7 . 80 }
//!   }
//!   chain prerouting  { type nat hook prerouting priority -110; policy accept;
//!     ip daddr . meta l4proto . th dport vmap @ports4 }
//!   chain output      { type nat hook output priority -110; policy accept; … }
//!   chain postrouting { type nat hook postrouting priority 99; policy accept;
//!     ct status dnat ct original ip daddr . meta l4proto . ct original proto-dst @detoured4
//!       masquerade fully-random }
//!   chain forward     { type filter hook forward priority -1; policy accept;
//!     meta l4proto tcp ct state established ct status dnat
//!       ct original ip daddr . meta l4proto . ct original proto-dst @detoured4
//!       ip daddr . meta l4proto . th dport @lost4 reject with tcp reset }
//!   chain clients     { type filter hook prerouting priority -90; policy accept;
//!     ct state new ct original ip daddr . meta l4proto . ct original proto-dst @affine4
//!       delete @clients4 { … } update @clients4 { ip saddr . ct original ip daddr . meta l4proto . ct original proto-dst
//!                          : ip daddr . th dport } }
//! }
//! ```
//!
//! and the same for IPv6. The chains of type `nat` run before those of kube-proxy (-100 and 100), and what one of them has
//! decided no later one is asked for: so the masquerade is ours, too. kube-proxy's filter by
//! `loadBalancerSourceRanges` is its own (nftables) or follows from its chain of type `nat` (iptables): clients
//! that are not let in are left to it.
//!
//! Where clients stay with a pod, the table notes beforehand which one each has: a client whose pod lives stays with it,
//! and what is noted of others is deleted when the detour is made.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, DataAttribute, Expressions, InetHookNumber, ListAttribute, MetaKey,
    NfTablesMessage, Operator, Register, SetAttribute, SetDescription, SetElementAttribute,
    SetElementList, SetElementMessage, SetFlags,
};

use crate::datapath::detour::plan::{Choice, Wanted};
use crate::net::nft::elements::{AT_ONCE, element};
use crate::net::nft::expressions::{
    FIRST, NETWORK_HEADER, TRANSPORT_HEADER, Tracked, compare, destination, destination_nat, hash,
    is_family, is_protocol, is_tracked, lookup, map, map_made, mask, masquerade, meta, payload,
    put, register, reset, tracked,
};
use crate::net::nft::family::{Family, octets};
use crate::net::nft::rules::{
    self as nft, INET_PROTO, INET_SERVICE, INTEGER, Mark, Rule, VERDICT, is_awake, is_hooked,
    marks, marks_of,
};
use leasehold_core::desired::Protocol;

/// The name of the table.
pub const TABLE: &str = "leasehold-detour";
/// The name of a map of a rule, as the kernel is given it.
const MADE: &str = "__map%d";
/// The beginning of the names of chains that choose.
const CHOICE: &str = "to-";

/// Just before kube-proxy's (`NF_IP_PRI_NAT_DST`, `NF_IP_PRI_NAT_SRC`, `linux/netfilter_ipv4.h`).
const BEFORE_DESTINATION_NAT: i32 = -110;
const BEFORE_SOURCE_NAT: i32 = 99;
/// After destination NAT.
const AFTER_DESTINATION_NAT: i32 = -90;
/// Before other filters (`NF_IP_PRI_FILTER`).
const BEFORE_FILTERS: i32 = -1;
// linux/netfilter/nf_conntrack_common.h, as nf_tables has it.
const ESTABLISHED: u32 = 1 << 1;
const NEW: u32 = 1 << 3;
const DESTINATION_NAT: u32 = 1 << 5;
/// `NFTA_SET_TIMEOUT`, in milliseconds: as long as a client stays with a pod by default (core/v1, `ClientIPConfig`).
const CLIENT_TIMEOUT: u64 = 10_800_000;
/// The most clients that are noted.
const CLIENTS: u32 = 65_536;

/// The ports that lead to chains.
pub(super) const fn ports(family: Family) -> &'static str {
    family.of_two("ports4", "ports6")
}

/// The same ports, of connections that are known.
pub(super) const fn detoured(family: Family) -> &'static str {
    family.of_two("detoured4", "detoured6")
}

/// The endpoints whose open connections end.
pub(super) const fn lost(family: Family) -> &'static str {
    family.of_two("lost4", "lost6")
}

/// The ports whose clients stay with a pod.
pub(super) const fn affine(family: Family) -> &'static str {
    family.of_two("affine4", "affine6")
}

/// The pods of clients.
pub(super) const fn clients(family: Family) -> &'static str {
    family.of_two("clients4", "clients6")
}

/// The base chains, and their hooks.
fn hooks() -> [(&'static str, Vec<ChainAttribute>); 5] {
    use InetHookNumber::{Forward, LocalOut, PostRouting, PreRouting};
    [
        ("prerouting", nft::hook("nat", PreRouting, BEFORE_DESTINATION_NAT)),
        ("output", nft::hook("nat", LocalOut, BEFORE_DESTINATION_NAT)),
        ("postrouting", nft::hook("nat", PostRouting, BEFORE_SOURCE_NAT)),
        ("forward", nft::hook("filter", Forward, BEFORE_FILTERS)),
        ("clients", nft::hook("filter", PreRouting, AFTER_DESTINATION_NAT)),
    ]
}

/// Where the first packet of the connection went: address, protocol, port, from this register on.
fn first_destination(family: Family, at: u32) -> [Expressions; 3] {
    let behind = at + family.words();
    [
        tracked(Tracked::Destination(family), register(at)),
        meta(MetaKey::L4Proto, register(behind)),
        tracked(Tracked::DestinationPort, register(behind + 1)),
    ]
}

fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::ALL {
        for chain in ["prerouting", "output"] {
            let mut detour = is_family(family).to_vec();
            detour.extend(destination(family));
            detour.push(map(ports(family), Register::Verdict));
            rules.push(Rule::new(chain, "to endpoints on other nodes", detour));
        }

        let mut source = is_family(family).to_vec();
        source.extend(is_tracked(Tracked::Status, DESTINATION_NAT));
        source.extend(first_destination(family, 0));
        source.extend([lookup(detoured(family)), masquerade()]);
        rules.push(Rule::new("postrouting", "answers come back here", source));

        let mut end = is_family(family).to_vec();
        end.extend(is_protocol(Protocol::Tcp.number()));
        end.extend(is_tracked(Tracked::State, ESTABLISHED));
        end.extend(is_tracked(Tracked::Status, DESTINATION_NAT));
        end.extend(first_destination(family, 0));
        end.push(lookup(detoured(family)));
        end.extend(destination(family));
        end.extend([lookup(lost(family)), reset()]);
        rules.push(Rule::new("forward", "connections to lost endpoints", end));

        let mut note = is_family(family).to_vec();
        note.extend(is_tracked(Tracked::State, NEW));
        note.extend(first_destination(family, 0));
        note.push(lookup(affine(family)));
        note.push(payload(NETWORK_HEADER, family.source(), family.length(), FIRST));
        note.extend(first_destination(family, family.words()));
        let data = 2 * family.words() + 2;
        note.extend([
            payload(NETWORK_HEADER, family.destination(), family.length(), register(data)),
            payload(TRANSPORT_HEADER, 2, 2, register(data + family.words())),
        ]);
        note.extend(put(clients(family), register(data)));
        rules.push(Rule::new("clients", "the pod of each client", note));
    }
    rules
}

/// Everything in the table but its content, in the order in which it is made.
pub(super) fn skeleton() -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    for (family, number) in Family::ALL.into_iter().zip(0..) {
        let address = (family.key_type(), family.length());
        let port = (((address.0 << 6) | INET_PROTO) << 6 | INET_SERVICE, address.1 + 8);
        let target = ((address.0 << 6) | INET_SERVICE, address.1 + 4);
        let client = ((address.0 << 18) | port.0, address.1 + port.1);
        let first = 5 * number + 1;
        let mut set = |name, id, key, flags, more| {
            messages.push(("a set", nft::set(TABLE, name, id, key, flags, more)));
        };
        let to_chains = vec![SetAttribute::DataType(VERDICT)];
        set(ports(family), first, port, SetFlags::Timeout | SetFlags::Map, to_chains);
        set(detoured(family), first + 1, port, SetFlags::Timeout, Vec::new());
        set(lost(family), first + 2, port, SetFlags::Timeout, Vec::new());
        set(affine(family), first + 3, port, SetFlags::Timeout, Vec::new());
        let to_pods = vec![
            SetAttribute::DataType(target.0),
            SetAttribute::DataLen(target.1),
            SetAttribute::Timeout(CLIENT_TIMEOUT),
            SetAttribute::Description(vec![SetDescription::Size(CLIENTS)]),
        ];
        let flags = SetFlags::Timeout | SetFlags::Map | SetFlags::Eval;
        set(clients(family), first + 4, client, flags, to_pods);
    }
    messages.extend(hooks().map(|(name, hook)| ("a chain", nft::chain(TABLE, name, hook))));
    messages.extend(rules().into_iter().map(|rule| ("a rule", rule.message(TABLE))));
    messages
}

/// Makes the chain of a choice; sets of the transaction are numbered from `next` on.
pub(super) fn choice(
    name: &str,
    choice: &Choice,
    next: &mut u32,
) -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = vec![("a chain", nft::chain(TABLE, name, Vec::new()))];
    for (number, kind) in kinds(choice).into_iter().enumerate() {
        let (sets, expressions) = kind.made(choice, next);
        messages.extend(sets);
        let rule = Rule::marked(name, kind.comment(), mark_of(choice, number), expressions);
        messages.push(("a rule", rule.message(TABLE)));
    }
    messages
}

/// The rules of a choice.
fn kinds(choice: &Choice) -> Vec<Kind> {
    let sources: Vec<Option<IpNet>> = if choice.sources.is_empty() {
        vec![None]
    } else {
        choice.sources.iter().copied().map(Some).collect()
    };
    let noted = sources.iter().filter(|_| choice.affine).map(|source| Kind::Noted(*source));
    noted.chain(sources.iter().map(|source| Kind::Hashed(*source))).collect()
}

/// A rule of a choice, for these clients.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// To the pod that the client has: those that are not among the endpoints are forgotten.
    Noted(Option<IpNet>),
    /// To one of the endpoints.
    Hashed(Option<IpNet>),
}

impl Kind {
    const fn comment(self) -> &'static str {
        match self {
            Self::Noted(_) => "to the pod of the client",
            Self::Hashed(_) => "to one of the endpoints",
        }
    }

    /// The map that it needs, and its expressions.
    fn made(
        self,
        choice: &Choice,
        next: &mut u32,
    ) -> (Vec<(&'static str, NfTablesMessage)>, Vec<Expressions>) {
        let family = choice.to.first().map_or(Family::V4, |(ip, _)| Family::of(*ip));
        let (Self::Noted(source) | Self::Hashed(source)) = self;
        let mut expressions = is_family(family).to_vec();
        expressions.extend(source.map(is_from).into_iter().flatten());
        let mut sets = Vec::new();
        let (client, length) = (family.source(), family.length());
        match self {
            Self::Noted(_) => {
                let (to, behind) = (family.words(), 2 * family.words());
                expressions.extend([
                    payload(NETWORK_HEADER, client, length, FIRST),
                    payload(NETWORK_HEADER, family.destination(), length, register(to)),
                    meta(MetaKey::L4Proto, register(behind)),
                    payload(TRANSPORT_HEADER, 2, 2, register(behind + 1)),
                    map(clients(family), FIRST),
                ]);
            }
            Self::Hashed(_) => {
                let id = *next;
                *next = next.wrapping_add(1);
                sets = endpoints(choice, family, id);
                expressions.push(payload(NETWORK_HEADER, client, length, register(1)));
                if !choice.affine {
                    let behind = register(1 + family.words());
                    expressions.push(payload(TRANSPORT_HEADER, 0, 2, behind));
                }
                let hashed = if choice.affine { length } else { length + 4 };
                let count = u32::try_from(choice.to.len()).unwrap_or(u32::MAX);
                expressions
                    .extend([hash(register(1), hashed, count, 0), map_made(MADE, id, FIRST)]);
            }
        }
        expressions.push(destination_nat(family, FIRST, register(family.words())));
        (sets, expressions)
    }
}

/// The endpoints of a choice by their numbers, as a map that is made with the rule.
fn endpoints(choice: &Choice, family: Family, id: u32) -> Vec<(&'static str, NfTablesMessage)> {
    let element = |(number, (ip, port)): (u32, &(IpAddr, u16))| {
        let mut attributes = element(number.to_ne_bytes().to_vec());
        let data = [octets(*ip), port.to_be_bytes().to_vec(), vec![0; 2]].concat();
        attributes.push(SetElementAttribute::Data(DataAttribute::Value(data)));
        ListAttribute::Element(attributes)
    };
    let elements: Vec<_> = (0..).zip(&choice.to).map(element).collect();
    let filled = elements.chunks(AT_ONCE).map(|elements| {
        let attributes = vec![
            SetElementList::Table(TABLE.to_owned()),
            SetElementList::Set(MADE.to_owned()),
            SetElementList::SetId(id),
            SetElementList::Elements(elements.to_vec()),
        ];
        ("elements", NfTablesMessage::NewSetElement(SetElementMessage { attributes }))
    });
    let flags = SetFlags::Anonymous | SetFlags::Constant | SetFlags::Map;
    let (kind, length) = ((family.key_type() << 6) | INET_SERVICE, family.length() + 4);
    let more = vec![SetAttribute::DataType(kind), SetAttribute::DataLen(length)];
    let set = nft::set(TABLE, MADE, id, (INTEGER, 4), flags, more);
    [("a set", set)].into_iter().chain(filled).collect()
}

/// Ends the rule for clients from elsewhere.
fn is_from(source: IpNet) -> [Expressions; 3] {
    let family = Family::of(source.addr());
    [
        payload(NETWORK_HEADER, family.source(), family.length(), FIRST),
        mask(&octets(source.netmask())),
        compare(Operator::Equal, &octets(source.network())),
    ]
}

/// A number that differs where the choice or the rule of it does, whatever its sets are called.
fn mark_of(choice: &Choice, number: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (choice, number).hash(&mut hasher);
    hasher.finish()
}

/// The questions for the base chains.
pub(super) fn chain_questions() -> [NfTablesMessage; 5] {
    hooks().map(|(name, _)| nft::chain_question(TABLE, name))
}

/// Compares these answers with a table as [`skeleton`] makes it, with the choices that are wanted, if they are there, as
/// they should be; and the names of all choices.
pub(super) fn is_intact(
    table: &NfTablesMessage,
    chains: &[Option<NfTablesMessage>],
    rules: &[NfTablesMessage],
    wanted: &Wanted,
) -> (bool, Vec<String>) {
    let (choices, base): (Vec<Mark>, Vec<Mark>) =
        marks_of(rules).into_iter().partition(|(chain, _)| chain.starts_with(CHOICE));
    let hooked = chains
        .iter()
        .zip(hooks())
        .all(|(chain, (_, hook))| chain.as_ref().is_some_and(|chain| is_hooked(chain, &hook)));
    let as_wanted = wanted.choices.iter().all(|(name, choice)| {
        let found: Vec<&Mark> = choices.iter().filter(|(chain, _)| chain == name).collect();
        let expected = kinds(choice).into_iter().enumerate().map(|(number, kind)| {
            Rule::marked(name.as_str(), kind.comment(), mark_of(choice, number), []).mark()
        });
        found.is_empty() || expected.collect::<Vec<_>>().iter().eq(found)
    });
    let intact = is_awake(table) && hooked && base == marks(&self::rules()) && as_wanted;
    let mut names: Vec<String> = choices.into_iter().map(|(chain, _)| chain).collect();
    names.dedup();
    (intact, names)
}
