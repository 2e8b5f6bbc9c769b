//! The table, its sets, chains and rules as netlink messages.
//!
//! ```text
//! table inet leasehold {
//!   set addresses4 { type ipv4_addr; flags timeout }
//!   set ports4     { type ipv4_addr . inet_proto . inet_service }
//!   chain prerouting {
//!     type filter hook prerouting priority raw; policy accept;
//!     iif lo accept
//!     ip daddr @addresses4 goto guard4
//!   }
//!   chain guard4 {
//!     ip daddr . meta l4proto . th dport @ports4 accept
//!     meta l4proto icmp accept
//!     ip frag-off & 0x1fff != 0 accept
//!     counter drop
//!   }
//! }
//! ```
//!
//! and the same for IPv6. It decides before destination NAT (priority -100), which would hide that a
//! node port was asked for, and before connection tracking (-200), which what is dropped does not
//! burden. What this node sends to an address of its own comes in by the loopback device. Fragments
//! but the first have no port, and are nothing without the first; where connections are tracked,
//! they have been joined before (-400).
//!
//! Each rule carries a mark that follows from what it says: a table of another version, or one that
//! somebody has changed, is told by its rules' marks.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use netlink_packet_core::{DefaultNla, Emitable};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions,
    Hook, HookNumber, Immediate, InetHookNumber, ListAttribute, Lookup, Meta, MetaKey,
    NfTablesMessage, Operator, Payload, Register, RuleAttribute, RuleMessage, SetAttribute,
    SetFlags, SetMessage, TableAttribute, TableFlags, TableMessage, Verdict, VerdictAttribute,
};

/// The name of the table.
pub const TABLE: &str = "leasehold";
const BASE_CHAIN: &str = "prerouting";

// linux/netfilter.h
const DROP: Verdict = Verdict::Other(0);
const ACCEPT: Verdict = Verdict::Other(1);
const POLICY_ACCEPT: u32 = 1;
/// `NF_IP_PRI_RAW` (`linux/netfilter_ipv4.h`), the same for IPv6.
const PRIORITY: i32 = -300;
/// The loopback device is the first of each network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;
// linux/netfilter/nf_tables.h
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const EXTHDR_DREG: u16 = 1;
const EXTHDR_TYPE: u16 = 2;
const EXTHDR_OFFSET: u16 = 3;
const EXTHDR_LEN: u16 = 4;
/// The fragment header (RFC 8200 section 4.5).
const FRAGMENT: u8 = 44;
/// nftables keeps a rule's comment in its user data, with this type (`libnftnl/udata.h`).
const COMMENT: u8 = 0;
// What nftables calls the types of keys; the kernel does not look at them.
const INET_PROTO: u32 = 12;
const INET_SERVICE: u32 = 13;

/// An address family, and what of the table is for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    pub(super) const fn has(self, ip: IpAddr) -> bool {
        matches!((self, ip), (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_)))
    }

    /// The set of protected addresses.
    pub(super) const fn addresses(self) -> &'static str {
        match self {
            Self::V4 => "addresses4",
            Self::V6 => "addresses6",
        }
    }

    /// The set of the ports that may be reached.
    pub(super) const fn ports(self) -> &'static str {
        match self {
            Self::V4 => "ports4",
            Self::V6 => "ports6",
        }
    }

    /// The chain for what goes to a protected address.
    const fn chain(self) -> &'static str {
        match self {
            Self::V4 => "guard4",
            Self::V6 => "guard6",
        }
    }

    /// The length of an address.
    const fn length(self) -> u32 {
        match self {
            Self::V4 => 4,
            Self::V6 => 16,
        }
    }

    /// The offset of the destination in the IP header.
    const fn destination(self) -> u32 {
        match self {
            Self::V4 => 16,
            Self::V6 => 24,
        }
    }

    /// `NFPROTO_*`.
    const fn protocol(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// ICMP, and that of IPv6.
    const fn control(self) -> u8 {
        match self {
            Self::V4 => 1,
            Self::V6 => 58,
        }
    }

    /// nftables' type of an address.
    const fn key_type(self) -> u32 {
        match self {
            Self::V4 => 7,
            Self::V6 => 8,
        }
    }

    /// Registers behind the address, where that is loaded into the first one.
    const fn behind(self) -> [Register; 2] {
        match self {
            Self::V4 => [Register::Reg32_01, Register::Reg32_02],
            Self::V6 => [Register::Reg32_04, Register::Reg32_05],
        }
    }
}

/// One rule.
struct Rule {
    chain: &'static str,
    /// The purpose of the rule.
    comment: &'static str,
    expressions: Vec<ListAttribute<ExpressionAttribute>>,
}

impl Rule {
    fn new(
        chain: &'static str,
        comment: &'static str,
        expressions: impl IntoIterator<Item = Expressions>,
    ) -> Self {
        let expressions = expressions.into_iter().map(ListAttribute::from).collect();
        Self { chain, comment, expressions }
    }

    /// The comment that `nft` shows, with a number that differs where the rule does.
    fn mark(&self) -> Vec<u8> {
        let expressions = self.expressions.as_slice();
        let mut bytes = vec![0; expressions.buffer_len()];
        expressions.emit(&mut bytes);
        let mut hasher = DefaultHasher::new();
        (self.chain, self.comment, bytes).hash(&mut hasher);
        let text = format!("{} [{:016x}]\0", self.comment, hasher.finish());
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        [[COMMENT, length].as_slice(), text.as_bytes()].concat()
    }

    fn message(self) -> RuleMessage {
        let attributes = vec![
            RuleAttribute::Table(TABLE.to_owned()),
            RuleAttribute::Chain(self.chain.to_owned()),
            RuleAttribute::UserData(self.mark()),
            RuleAttribute::Expressions(self.expressions),
        ];
        RuleMessage { attributes }
    }
}

fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::ALL {
        let chain = family.chain();
        let [protocol, port] = family.behind();
        let first = Register::Reg32_00;
        let mut open = is_family(family).to_vec();
        open.extend([
            payload(NETWORK_HEADER, family.destination(), family.length(), first),
            meta(MetaKey::L4Proto, protocol),
            payload(TRANSPORT_HEADER, 2, 2, port),
            lookup(family.ports()),
            verdict(ACCEPT, None),
        ]);
        rules.push(Rule::new(chain, "ports of the Services", open));
        let control = [
            meta(MetaKey::L4Proto, first),
            compare(Operator::Equal, &[family.control()]),
            verdict(ACCEPT, None),
        ];
        rules.push(Rule::new(chain, "ICMP", control));
        rules.push(Rule::new(chain, "fragments but the first", later_fragments(family)));
        let counter =
            Expressions::Other { expression_type: "counter".to_owned(), attributes: Vec::new() };
        rules.push(Rule::new(chain, "what is not of the Services", [counter, verdict(DROP, None)]));
    }
    let own = [
        meta(MetaKey::Iif, Register::Reg32_00),
        compare(Operator::Equal, &LOOPBACK.to_ne_bytes()),
        verdict(ACCEPT, None),
    ];
    rules.push(Rule::new(BASE_CHAIN, "from this node", own));
    for family in Family::ALL {
        let mut guarded = is_family(family).to_vec();
        guarded.extend([
            payload(NETWORK_HEADER, family.destination(), family.length(), Register::Reg32_00),
            lookup(family.addresses()),
            verdict(Verdict::Goto, Some(family.chain())),
        ]);
        rules.push(Rule::new(BASE_CHAIN, "to an address of Services", guarded));
    }
    rules
}

fn later_fragments(family: Family) -> Vec<Expressions> {
    let register = Register::Reg32_00;
    let (load, mask) = match family {
        Family::V4 => (payload(NETWORK_HEADER, 6, 2, register), [0x1f, 0xff]),
        Family::V6 => {
            let attributes = vec![
                DefaultNla::new(EXTHDR_DREG, u32::from(register).to_be_bytes().to_vec()),
                DefaultNla::new(EXTHDR_TYPE, vec![FRAGMENT]),
                DefaultNla::new(EXTHDR_OFFSET, 2_u32.to_be_bytes().to_vec()),
                DefaultNla::new(EXTHDR_LEN, 2_u32.to_be_bytes().to_vec()),
            ];
            let load = Expressions::Other { expression_type: "exthdr".to_owned(), attributes };
            (load, [0xff, 0xf8])
        }
    };
    let offset = Expressions::Bitwise(vec![
        Bitwise::SourceRegister(register),
        Bitwise::DestinationRegister(register),
        Bitwise::Length(2),
        Bitwise::Mask(DataAttribute::Value(mask.to_vec())),
        Bitwise::Xor(DataAttribute::Value(vec![0, 0])),
    ]);
    let mut expressions = is_family(family).to_vec();
    expressions.extend([load, offset, compare(Operator::NotEqual, &[0, 0]), verdict(ACCEPT, None)]);
    expressions
}

fn is_family(family: Family) -> [Expressions; 2] {
    [meta(MetaKey::Nfproto, Register::Reg32_00), compare(Operator::Equal, &[family.protocol()])]
}

fn meta(key: MetaKey, register: Register) -> Expressions {
    Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(register)])
}

fn payload(base: u32, offset: u32, length: u32, register: Register) -> Expressions {
    Expressions::Payload(vec![
        Payload::DestinationRegister(register),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ])
}

fn compare(operator: Operator, bytes: &[u8]) -> Expressions {
    Expressions::Cmp(vec![
        Cmp::SourceRegister(Register::Reg32_00),
        Cmp::Op(operator),
        Cmp::Data(DataAttribute::Value(bytes.to_vec())),
    ])
}

fn lookup(set: &str) -> Expressions {
    Expressions::Lookup(vec![
        Lookup::Set(set.to_owned()),
        Lookup::SourceRegister(Register::Reg32_00),
    ])
}

fn verdict(verdict: Verdict, chain: Option<&str>) -> Expressions {
    let mut attributes = vec![VerdictAttribute::Code(verdict)];
    attributes.extend(chain.map(|chain| VerdictAttribute::Chain(chain.to_owned())));
    Expressions::Immediate(vec![
        Immediate::DestinationRegister(Register::Verdict),
        Immediate::Data(DataAttribute::Verdict(attributes)),
    ])
}

/// The table by its name.
pub(super) fn table() -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name(TABLE.to_owned())] }
}

/// Everything in the table but elements, in the order in which it is made.
pub(super) fn skeleton() -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    for (family, number) in Family::ALL.into_iter().zip(0..) {
        let addresses = family.key_type();
        let ports = ((addresses << 6) | INET_PROTO) << 6 | INET_SERVICE;
        let (first, second) = (2 * number + 1, 2 * number + 2);
        messages.push(set(
            family.addresses(),
            first,
            addresses,
            family.length(),
            SetFlags::Timeout,
        ));
        messages.push(set(family.ports(), second, ports, family.length() + 8, SetFlags::empty()));
        messages.push(chain(family.chain(), Vec::new()));
    }
    messages.push(chain(BASE_CHAIN, hook()));
    messages.extend(
        rules().into_iter().map(|rule| ("a rule", NfTablesMessage::NewRule(rule.message()))),
    );
    messages
}

fn set(
    name: &str,
    id: u32,
    key_type: u32,
    key_length: u32,
    flags: SetFlags,
) -> (&'static str, NfTablesMessage) {
    let attributes = vec![
        SetAttribute::Table(TABLE.to_owned()),
        SetAttribute::Name(name.to_owned()),
        SetAttribute::Flags(flags),
        SetAttribute::KeyType(key_type),
        SetAttribute::KeyLen(key_length),
        SetAttribute::Id(id),
    ];
    ("a set", NfTablesMessage::NewSet(SetMessage { attributes }))
}

fn chain(name: &str, more: Vec<ChainAttribute>) -> (&'static str, NfTablesMessage) {
    let mut attributes =
        vec![ChainAttribute::Table(TABLE.to_owned()), ChainAttribute::Name(name.to_owned())];
    attributes.extend(more);
    ("a chain", NfTablesMessage::NewChain(ChainMessage { attributes }))
}

/// The attributes that make a chain a base chain.
fn hook() -> Vec<ChainAttribute> {
    vec![
        ChainAttribute::Type("filter".to_owned()),
        ChainAttribute::Hook(vec![
            Hook::Number(HookNumber::Inet(InetHookNumber::PreRouting)),
            Hook::Priority(PRIORITY.cast_unsigned()),
        ]),
        ChainAttribute::Policy(POLICY_ACCEPT),
    ]
}

/// The question for the table.
pub(super) fn table_question() -> NfTablesMessage {
    NfTablesMessage::GetTable(table())
}

/// The question for the base chain.
pub(super) fn chain_question() -> NfTablesMessage {
    let attributes =
        vec![ChainAttribute::Table(TABLE.to_owned()), ChainAttribute::Name(BASE_CHAIN.to_owned())];
    NfTablesMessage::GetChain(ChainMessage { attributes })
}

/// The question for all rules of the table.
pub(super) fn rules_question() -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(TABLE.to_owned())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Whether these answers are of a table as [`skeleton`] makes it.
pub(super) fn is_intact(
    table: &NfTablesMessage,
    chain: Option<&NfTablesMessage>,
    rules: &[NfTablesMessage],
) -> bool {
    is_awake(table) && chain.is_some_and(is_hooked) && marks_of(rules) == marks()
}

fn is_awake(table: &NfTablesMessage) -> bool {
    let NfTablesMessage::NewTable(table) = table else { return false };
    let dormant = TableAttribute::Flags(TableFlags::Dormant);
    !table.attributes.contains(&dormant)
}

fn is_hooked(chain: &NfTablesMessage) -> bool {
    let NfTablesMessage::NewChain(chain) = chain else { return false };
    let has = |wanted: &ChainAttribute| {
        match wanted {
        ChainAttribute::Hook(parts) => chain.attributes.iter().any(|attribute| {
            matches!(attribute, ChainAttribute::Hook(all) if parts.iter().all(|p| all.contains(p)))
        }),
        wanted => chain.attributes.contains(wanted),
    }
    };
    hook().iter().all(has)
}

type Mark = (String, Vec<u8>);

/// The marks of all rules by chain, in the order of each.
fn marks() -> Vec<Mark> {
    sorted(rules().iter().map(|rule| (rule.chain.to_owned(), rule.mark())).collect())
}

fn marks_of(rules: &[NfTablesMessage]) -> Vec<Mark> {
    let mark = |rule: &NfTablesMessage| {
        let NfTablesMessage::NewRule(rule) = rule else { return Mark::default() };
        let mut mark = Mark::default();
        for attribute in &rule.attributes {
            match attribute {
                RuleAttribute::Chain(chain) => mark.0.clone_from(chain),
                RuleAttribute::UserData(bytes) => mark.1.clone_from(bytes),
                _ => {}
            }
        }
        mark
    };
    sorted(rules.iter().map(mark).collect())
}

fn sorted(mut marks: Vec<Mark>) -> Vec<Mark> {
    marks.sort_by(|one, other| one.0.cmp(&other.0));
    marks
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The answers of the kernel.
    fn answers() -> (NfTablesMessage, NfTablesMessage, Vec<NfTablesMessage>) {
        let mut table = table();
        table.attributes.push(TableAttribute::Flags(TableFlags::empty()));
        let mut chains = Vec::new();
        let mut rules = Vec::new();
        for (_, message) in skeleton() {
            match &message {
                NfTablesMessage::NewChain(_) => chains.push(message),
                NfTablesMessage::NewRule(_) => rules.push(message),
                _ => {}
            }
        }
        // The kernel lists chain by chain.
        rules.rotate_left(8);
        (NfTablesMessage::NewTable(table), chains.pop().unwrap(), rules)
    }

    #[test]
    fn a_table_as_it_is_made_is_intact() {
        let (table, chain, rules) = answers();
        assert!(is_intact(&table, Some(&chain), &rules));
    }

    #[test]
    fn a_table_that_somebody_changed_is_not() {
        let (table, chain, rules) = answers();
        assert!(!is_intact(&table, None, &rules), "no chain");
        for number in 0..rules.len() {
            let mut fewer = rules.clone();
            let mut rule = fewer.remove(number);
            assert!(!is_intact(&table, Some(&chain), &fewer), "without rule {number}");
            if let NfTablesMessage::NewRule(rule) = &mut rule {
                rule.attributes.retain(|a| !matches!(a, RuleAttribute::UserData(_)));
            }
            fewer.insert(number, rule);
            assert!(!is_intact(&table, Some(&chain), &fewer), "rule {number} by somebody else");
        }
        let mut exchanged = rules.clone();
        exchanged.swap(1, 2);
        assert!(!is_intact(&table, Some(&chain), &exchanged), "in another order");
        let mut dormant = table.clone();
        if let NfTablesMessage::NewTable(table) = &mut dormant {
            table.attributes = vec![TableAttribute::Flags(TableFlags::Dormant)];
        }
        assert!(!is_intact(&dormant, Some(&chain), &rules), "dormant");
        let mut later = chain.clone();
        if let NfTablesMessage::NewChain(chain) = &mut later {
            for attribute in &mut chain.attributes {
                if let ChainAttribute::Hook(parts) = attribute {
                    parts.retain(|part| !matches!(part, Hook::Priority(_)));
                    parts.push(Hook::Priority(0));
                }
            }
        }
        assert!(!is_intact(&table, Some(&later), &rules), "another priority");
    }

    #[test]
    fn the_mark_of_a_rule_is_its_own() {
        let all = rules();
        let marks: BTreeSet<Vec<u8>> = all.iter().map(Rule::mark).collect();
        assert_eq!(marks.len(), all.len());
        let mark = all[0].mark();
        assert_eq!(mark[0], COMMENT);
        assert_eq!(usize::from(mark[1]), mark.len() - 2);
        assert!(mark.ends_with(b"\0"));
    }
}
