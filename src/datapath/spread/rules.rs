//! The rules of the chains that decide by the bucket of a packet, and the sets that these need.

use std::collections::BTreeSet;

use leasehold_core::desired::Protocol;
use leasehold_core::election::BUCKETS;
use netlink_packet_netfilter::nftables::{
    Expressions, MetaKey, NfTablesMessage, Operator, SetAttribute, SetDescription,
    SetElementAttribute, SetFlags, Verdict,
};
use pnet_base::MacAddr;

use crate::datapath::packets::{begins, known, send_on};
use crate::datapath::spread::chains::{Chain, Chance, Dispatch, Key, Late, Target};
use crate::datapath::spread::plan::Place;
use crate::datapath::spread::ruleset::{SPEAKERS, TABLE, asked, kept, mark};
use crate::net::nft::elements::{self, element, valued};
use crate::net::nft::expressions::{
    ACCEPT, DROP, FIRST, NETWORK_HEADER, TRANSPORT_HEADER, compare, compare_local, counter, hash,
    is_protocol, lookup, lookup_none, map, meta, payload, register, send, sender, verdict,
};
use crate::net::nft::family::{Family, octets};
use crate::net::nft::rules::{self as nft, ETHER_ADDRESS, INTERFACE_INDEX, MARK, Rule, marks};

/// The seed of the hash that gives a packet its bucket. It is part of the format, as the hash is and as what goes into it
/// are: nodes that disagree would lead each other's connections astray. The words of the hash are those of the host: all nodes
/// have the same byte order.
const SEED: u32 = 0x1ea5_e401;

/// A set or map of a chain, with what is loaded from the first register on as its key.
#[derive(Debug)]
struct Set {
    name: String,
    flags: SetFlags,
    key: (u32, u32),
    more: Vec<SetAttribute>,
    elements: Vec<Vec<SetElementAttribute>>,
}

impl Set {
    fn of_buckets<'a>(name: String, buckets: impl IntoIterator<Item = &'a u16>) -> Self {
        let elements = buckets.into_iter().map(|bucket| element(bucket_key(*bucket))).collect();
        Self::new(name, (MARK, 4), elements)
    }

    fn of_senders<'a>(name: String, of: impl IntoIterator<Item = &'a (u16, MacAddr)>) -> Self {
        let elements = of.into_iter().map(|sender| element(sender_key(*sender))).collect();
        Self::new(name, SENDER, elements)
    }

    fn new(name: String, key: (u32, u32), elements: Vec<Vec<SetElementAttribute>>) -> Self {
        // The kernel refuses to change the elements once a rule asks for them.
        Self { name, flags: SetFlags::Constant, key, more: Vec::new(), elements }
    }

    /// The same, as a map whose values are these.
    fn to<'a>(mut self, family: Family, targets: impl IntoIterator<Item = &'a Target>) -> Self {
        let value =
            |(ip, interface): &Target| [octets(*ip), interface.to_ne_bytes().to_vec()].concat();
        let elements = std::mem::take(&mut self.elements).into_iter().zip(targets);
        self.elements = elements.map(|(element, target)| valued(element, value(target))).collect();
        self.flags |= SetFlags::Map;
        self.more = vec![
            SetAttribute::DataType((family.key_type() << 6) | INTERFACE_INDEX),
            SetAttribute::DataLen(family.length() + 4),
        ];
        self
    }

    fn messages(self, next: &mut u32) -> Vec<(&'static str, NfTablesMessage)> {
        let size = u32::try_from(self.elements.len()).unwrap_or(u32::MAX);
        let mut more = self.more;
        more.push(SetAttribute::Description(vec![SetDescription::Size(size)]));
        let set = nft::set(TABLE, &self.name, *next, self.key, self.flags, more);
        *next = next.wrapping_add(1);
        let elements = elements::messages(TABLE, &self.name, self.elements);
        let elements =
            elements.into_iter().map(|it| ("elements", NfTablesMessage::NewSetElement(it)));
        [("a set", set)].into_iter().chain(elements).collect()
    }
}

/// A bucket, and a sender.
const SENDER: (u32, u32) = ((MARK << 6) | ETHER_ADDRESS, 12);

fn bucket_key(bucket: u16) -> Vec<u8> {
    u32::from(bucket).to_ne_bytes().to_vec()
}

fn sender_key((bucket, mac): (u16, MacAddr)) -> Vec<u8> {
    [bucket_key(bucket), mac.octets().to_vec(), vec![0; 2]].concat()
}

/// The subject of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// A connection, whose client has sent it.
    Connection,
    /// An error of a packet that was sent to the client.
    Error,
}

impl About {
    const BOTH: [Self; 2] = [Self::Connection, Self::Error];

    const fn of_two(self, connection: &'static str, error: &'static str) -> &'static str {
        match self {
            Self::Connection => connection,
            Self::Error => error,
        }
    }
}

/// Ends the rule for what is about something else.
fn is_about(about: About, family: Family) -> [Expressions; 2] {
    let operator = match about {
        About::Connection => Operator::NotEqual,
        About::Error => Operator::Equal,
    };
    [meta(MetaKey::L4Proto, FIRST), compare(operator, &[family.control()])]
}

/// Loads the bucket into the first register; those from this one on are overwritten.
fn bucket(key: Key, about: About, at: u32) -> Vec<Expressions> {
    let Key { family, by_client } = key;
    let length = family.length();
    // Behind the header of the error is that of the packet, which went to the client.
    let inner = 8;
    let (client, port) = match about {
        About::Connection => (
            payload(NETWORK_HEADER, family.source(), length, register(at)),
            payload(TRANSPORT_HEADER, 0, 2, register(at + family.words())),
        ),
        About::Error => (
            payload(TRANSPORT_HEADER, inner + family.destination(), length, register(at)),
            payload(
                TRANSPORT_HEADER,
                inner + family.header_length() + 2,
                2,
                register(at + family.words()),
            ),
        ),
    };
    let mut loads = vec![client];
    loads.extend((!by_client).then_some(port));
    let hashed = if by_client { length } else { length + 4 };
    loads.push(hash(register(at), hashed, BUCKETS.into(), SEED));
    loads
}

/// Loads the bucket and the sender, from the first register on.
fn bucket_and_sender(key: Key, about: About) -> Vec<Expressions> {
    let mut loads = sender(register(1)).to_vec();
    loads.extend(bucket(key, about, 3));
    loads
}

/// The sets and rules of a chain.
#[derive(Debug, Default)]
struct Made {
    sets: Vec<Set>,
    rules: Vec<Rule>,
}

impl Made {
    fn of(place: Place, name: &str, chain: &Chain) -> Self {
        let mut made = Self::default();
        match chain {
            Chain::Dispatch(dispatch) => made.dispatch(place, name, dispatch),
            Chain::Chance(chance) => made.chance(name, chance),
        }
        made
    }

    fn add(&mut self, chain: &str, comment: &'static str, rule: Vec<Expressions>) {
        self.rules.push(Rule::new(chain, comment, rule));
    }

    fn dispatch(&mut self, place: Place, name: &str, Dispatch { key, to }: &Dispatch) {
        let family = key.family;
        let jump = vec![verdict(Verdict::Jump, Some(kept(family)))];
        self.add(name, "what stays here", jump);
        self.sets.push(Set::of_buckets(name.to_owned(), to.keys()).to(family, to.values()));
        for about in About::BOTH {
            let mut rule = is_about(about, family).to_vec();
            rule.extend(bucket(*key, about, 1));
            rule.push(map(name, FIRST));
            match place {
                Place::Ingress => {
                    rule.extend([counter(), send(family, FIRST, register(family.words()))]);
                }
                Place::Routing(_) => rule.extend(send_on(family)),
            }
            let comment =
                about.of_two("to the node of its bucket", "an error, to the node of its bucket");
            self.add(name, comment, rule);
        }
    }

    fn chance(&mut self, name: &str, chance: &Chance) {
        let family = chance.key.family;
        self.add(name, "of a connection of this node", known().to_vec());
        let jump = vec![verdict(Verdict::Jump, Some(asked(family)))];
        self.add(name, "what has no second chance", jump);
        if let Some(late) = &chance.late {
            self.late(name, chance.key, late);
        }
        self.add(name, "a connection begins", begins());
        if !chance.end.is_empty() {
            self.sets.push(Set::of_senders(format!("{name}{END}"), &chance.end));
        }
        if !chance.back.is_empty() {
            let senders = Set::of_senders(format!("{name}{BACK}"), chance.back.keys());
            self.sets.push(senders.to(family, chance.back.values()));
        }
        if !chance.onward.is_empty() {
            let buckets = Set::of_buckets(format!("{name}{ONWARD}"), chance.onward.keys());
            self.sets.push(buckets.to(family, chance.onward.values()));
        }
        self.of_connections(name, chance);
        self.of_errors(name, chance.key);
    }

    /// Packets of clients whose connection is not known here go to the node of their bucket.
    fn late(&mut self, name: &str, key: Key, Late { interface, to }: &Late) {
        let family = key.family;
        let set = format!("{name}{LATE}");
        self.sets.push(Set::of_buckets(set.clone(), to.keys()).to(family, to.values()));
        for about in About::BOTH {
            let mut rule =
                vec![meta(MetaKey::Iif, FIRST), compare(Operator::Equal, &interface.to_ne_bytes())];
            rule.extend(sender(FIRST));
            rule.push(lookup_none(SPEAKERS));
            rule.extend(compare_local(Operator::Equal));
            rule.extend(is_about(about, family));
            rule.extend(bucket(key, about, 1));
            rule.push(map(&set, FIRST));
            rule.extend(send_on(family));
            let comment = about.of_two("to the node that has the bucket now", "an error, to it");
            self.add(name, comment, rule);
        }
    }

    fn has(&self, name: &str, which: &str) -> Option<String> {
        let set = format!("{name}{which}");
        self.sets.iter().any(|it| it.name == set).then_some(set)
    }

    /// Packets of an open connection that is not known here.
    fn of_connections(&mut self, name: &str, chance: &Chance) {
        let key = chance.key;
        let tcp = || is_protocol(Protocol::Tcp.number()).to_vec();
        let by_sender = || [tcp(), bucket_and_sender(key, About::Connection)].concat();
        let by_bucket = || [tcp(), bucket(key, About::Connection, 1)].concat();
        let dropped = || vec![counter(), verdict(DROP, None)];
        let sent = || send_on(key.family).to_vec();
        if let Some(set) = self.has(name, END) {
            let rule = [by_sender(), vec![lookup(&set), verdict(ACCEPT, None)]].concat();
            self.add(name, "no node has had the bucket before this one", rule);
        }
        if let Some(set) = self.has(name, BACK) {
            let rule = [by_sender(), vec![map(&set, FIRST)], sent()].concat();
            self.add(name, "from the node before this one", rule);
        }
        let speakers = [tcp(), sender(FIRST).to_vec(), vec![lookup(SPEAKERS)], dropped()];
        self.add(name, "from another speaker: it is sent again", speakers.concat());
        if chance.owns {
            let gone = compare_local(Operator::NotEqual).to_vec();
            self.add(
                name,
                "the address is gone: it is sent again",
                [tcp(), gone, dropped()].concat(),
            );
        }
        if let Some(set) = self.has(name, ONWARD) {
            let rule = [by_bucket(), vec![map(&set, FIRST)], sent()].concat();
            self.add(name, "of an open connection", rule);
        }
        if !chance.owns {
            let rule = [tcp(), dropped()].concat();
            self.add(name, "for an address of another node: it is sent again", rule);
        }
    }

    /// Errors of such a connection.
    fn of_errors(&mut self, name: &str, key: Key) {
        let of = |loads: Vec<Expressions>| {
            let mut error = is_about(About::Error, key.family).to_vec();
            error.extend(loads);
            error
        };
        let by_sender = || of(bucket_and_sender(key, About::Error));
        if let Some(set) = self.has(name, BACK) {
            let sent = send_on(key.family).to_vec();
            let rule = [by_sender(), vec![map(&set, FIRST)], sent].concat();
            self.add(name, "an error, from the node before this one", rule);
        }
        if let Some(set) = self.has(name, ONWARD) {
            let clients = [sender(FIRST).to_vec(), vec![lookup_none(SPEAKERS)]].concat();
            let loads = [clients, of(bucket(key, About::Error, 1))].concat();
            let rule = [loads, vec![map(&set, FIRST)], send_on(key.family).to_vec()].concat();
            self.add(name, "an error", rule);
        }
    }
}

// The ends of the names of the sets of a second chance.
const LATE: &str = "-late";
const END: &str = "-end";
const BACK: &str = "-back";
const ONWARD: &str = "-onward";

/// Makes a chain; sets of the transaction are numbered from `next` on.
pub(super) fn chain(
    place: Place,
    name: &str,
    chain: &Chain,
    next: &mut u32,
) -> Vec<(&'static str, NfTablesMessage)> {
    let Made { sets, rules } = Made::of(place, name, chain);
    let sets = sets.into_iter().flat_map(|set| set.messages(next)).collect::<Vec<_>>();
    let chain = [("a chain", nft::chain(TABLE, name, Vec::new()))];
    let rules = rules.into_iter().map(|rule| ("a rule", rule.message(TABLE)));
    sets.into_iter().chain(chain).chain(rules).collect()
}

/// The mark of the rules of a chain, and the names of its sets.
pub(super) fn expected(place: Place, name: &str, chain: &Chain) -> (u64, BTreeSet<String>) {
    let Made { sets, rules } = Made::of(place, name, chain);
    let sets = sets.into_iter().map(|set| set.name).collect();
    (mark(&marks(&rules)), sets)
}
