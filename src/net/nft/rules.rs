//! Tables, chains, rules and sets as messages.
//!
//! Each rule carries a mark that follows from what it says: a table of another version, or one that
//! somebody has changed, is told by its rules' marks.

use std::hash::{DefaultHasher, Hash, Hasher};

use netlink_packet_core::Emitable;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, ExpressionAttribute, Expressions, Hook, HookNumber,
    InetHookNumber, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute,
    SetFlags, SetMessage, TableAttribute, TableFlags, TableMessage,
};

/// nftables keeps a rule's comment in its user data, with this type (`libnftnl/udata.h`).
const COMMENT: u8 = 0;
/// `NF_ACCEPT`, of a chain.
const POLICY_ACCEPT: u32 = 1;
// What nftables calls the types of keys; the kernel does not look at them.
/// A protocol.
pub const INET_PROTO: u32 = 12;
/// A port.
pub const INET_SERVICE: u32 = 13;
/// An Ethernet address.
pub const ETHER_ADDRESS: u32 = 9;
/// The index of an interface.
pub const INTERFACE_INDEX: u32 = 20;
/// A number.
pub const INTEGER: u32 = 4;
/// A packet mark: the number of four bytes that `nft` can list beside others in a key.
pub const MARK: u32 = 19;
/// `NFT_DATA_VERDICT`: the values of a map are decisions.
pub const VERDICT: u32 = 0xffff_ff00;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    chain: String,
    /// The purpose of the rule.
    comment: &'static str,
    /// The number in its mark, unless that follows from the expressions.
    number: Option<u64>,
    expressions: Vec<ListAttribute<ExpressionAttribute>>,
}

/// The mark of a rule: its chain, and its comment with a number that differs where the rule does.
pub type Mark = (String, Vec<u8>);

impl Rule {
    /// A rule at the end of `chain`.
    pub fn new(
        chain: impl Into<String>,
        comment: &'static str,
        expressions: impl IntoIterator<Item = Expressions>,
    ) -> Self {
        let expressions = expressions.into_iter().map(ListAttribute::from).collect();
        Self { chain: chain.into(), comment, number: None, expressions }
    }

    /// A rule whose expressions name what has another name each time: this number tells it.
    pub fn marked(
        chain: impl Into<String>,
        comment: &'static str,
        number: u64,
        expressions: impl IntoIterator<Item = Expressions>,
    ) -> Self {
        Self { number: Some(number), ..Self::new(chain, comment, expressions) }
    }

    /// Its mark.
    pub fn mark(&self) -> Mark {
        (self.chain.clone(), self.comment())
    }

    /// The comment that `nft` shows.
    fn comment(&self) -> Vec<u8> {
        let expressions = self.expressions.as_slice();
        let mut bytes = vec![0; expressions.buffer_len()];
        expressions.emit(&mut bytes);
        let mut hasher = DefaultHasher::new();
        (&self.chain, self.comment, bytes).hash(&mut hasher);
        let number = self.number.unwrap_or_else(|| hasher.finish());
        let text = format!("{} [{number:016x}]\0", self.comment);
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        [[COMMENT, length].as_slice(), text.as_bytes()].concat()
    }

    /// The message that makes it.
    pub fn message(self, table: &str) -> NfTablesMessage {
        let attributes = vec![
            RuleAttribute::Table(table.to_owned()),
            RuleAttribute::UserData(self.comment()),
            RuleAttribute::Chain(self.chain),
            RuleAttribute::Expressions(self.expressions),
        ];
        NfTablesMessage::NewRule(RuleMessage { attributes })
    }
}

/// A table by its name.
pub fn table(name: &str) -> TableMessage {
    TableMessage { attributes: vec![TableAttribute::Name(name.to_owned())] }
}

/// A set.
pub fn set(
    table: &str,
    name: &str,
    id: u32,
    key: (u32, u32),
    flags: SetFlags,
    more: Vec<SetAttribute>,
) -> NfTablesMessage {
    let mut attributes = vec![
        SetAttribute::Table(table.to_owned()),
        SetAttribute::Name(name.to_owned()),
        SetAttribute::Flags(flags),
        SetAttribute::KeyType(key.0),
        SetAttribute::KeyLen(key.1),
        SetAttribute::Id(id),
    ];
    attributes.extend(more);
    NfTablesMessage::NewSet(SetMessage { attributes })
}

/// A chain.
pub fn chain(table: &str, name: &str, more: Vec<ChainAttribute>) -> NfTablesMessage {
    let mut attributes =
        vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(name.to_owned())];
    attributes.extend(more);
    NfTablesMessage::NewChain(ChainMessage { attributes })
}

/// The attributes that make a chain a base chain.
pub fn hook(kind: &str, number: InetHookNumber, priority: i32) -> Vec<ChainAttribute> {
    vec![
        ChainAttribute::Type(kind.to_owned()),
        ChainAttribute::Hook(vec![
            Hook::Number(HookNumber::Inet(number)),
            Hook::Priority(priority.cast_unsigned()),
        ]),
        ChainAttribute::Policy(POLICY_ACCEPT),
    ]
}

/// The attributes that make a chain of the family `netdev` the base chain for what this device receives.
pub fn ingress(device: &str, priority: i32) -> Vec<ChainAttribute> {
    // `NF_NETDEV_INGRESS` is zero, which the codec reads as this.
    let mut attributes = hook("filter", InetHookNumber::PreRouting, priority);
    for attribute in &mut attributes {
        if let ChainAttribute::Hook(parts) = attribute {
            parts.push(Hook::NetDeviceName(device.to_owned()));
        }
    }
    attributes
}

/// Deletes a chain, and its rules before.
pub fn without_chain(table: &str, name: &str) -> [(&'static str, NfTablesMessage); 2] {
    let rules = RuleMessage {
        attributes: vec![
            RuleAttribute::Table(table.to_owned()),
            RuleAttribute::Chain(name.to_owned()),
        ],
    };
    let attributes =
        vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(name.to_owned())];
    [
        ("rules", NfTablesMessage::DeleteRule(rules)),
        ("a chain", NfTablesMessage::DeleteChain(ChainMessage { attributes })),
    ]
}

/// Deletes a set.
pub fn without_set(table: &str, name: &str) -> (&'static str, NfTablesMessage) {
    let attributes =
        vec![SetAttribute::Table(table.to_owned()), SetAttribute::Name(name.to_owned())];
    ("a set", NfTablesMessage::DeleteSet(SetMessage { attributes }))
}

/// The question for all sets of a table.
pub fn sets_question(table: &str) -> NfTablesMessage {
    let attributes = vec![SetAttribute::Table(table.to_owned())];
    NfTablesMessage::GetSet(SetMessage { attributes })
}

/// The names of the sets in these answers.
pub fn names_of(sets: &[NfTablesMessage]) -> impl Iterator<Item = &str> {
    sets.iter().filter_map(|set| match set {
        NfTablesMessage::NewSet(set) => {
            set.attributes.iter().find_map(|attribute| match attribute {
                SetAttribute::Name(name) => Some(name.as_str()),
                _ => None,
            })
        }
        _ => None,
    })
}

/// The question for a table.
pub fn table_question(name: &str) -> NfTablesMessage {
    NfTablesMessage::GetTable(table(name))
}

/// The question for a chain.
pub fn chain_question(table: &str, name: &str) -> NfTablesMessage {
    let attributes =
        vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(name.to_owned())];
    NfTablesMessage::GetChain(ChainMessage { attributes })
}

/// The question for all rules of a table.
pub fn rules_question(table: &str) -> NfTablesMessage {
    let attributes = vec![RuleAttribute::Table(table.to_owned())];
    NfTablesMessage::GetRule(RuleMessage { attributes })
}

/// Whether the answer for a table says that its chains are in use.
pub fn is_awake(table: &NfTablesMessage) -> bool {
    let NfTablesMessage::NewTable(table) = table else { return false };
    let dormant = TableAttribute::Flags(TableFlags::Dormant);
    !table.attributes.contains(&dormant)
}

/// Whether the answer for a chain says that it has this hook.
pub fn is_hooked(chain: &NfTablesMessage, hook: &[ChainAttribute]) -> bool {
    let NfTablesMessage::NewChain(chain) = chain else { return false };
    let has = |wanted: &ChainAttribute| {
        match wanted {
        ChainAttribute::Hook(parts) => chain.attributes.iter().any(|attribute| {
            matches!(attribute, ChainAttribute::Hook(all) if parts.iter().all(|p| all.contains(p)))
        }),
        wanted => chain.attributes.contains(wanted),
    }
    };
    hook.iter().all(has)
}

/// The device on which the answer for a chain says that it is hooked.
pub fn device_of(chain: &NfTablesMessage) -> Option<&str> {
    let NfTablesMessage::NewChain(chain) = chain else { return None };
    chain.attributes.iter().find_map(|attribute| match attribute {
        ChainAttribute::Hook(parts) => parts.iter().find_map(|part| match part {
            Hook::NetDeviceName(name) => Some(name.as_str()),
            _ => None,
        }),
        _ => None,
    })
}

/// The marks of rules by chain, in the order of each.
pub fn marks<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<Mark> {
    sorted(rules.into_iter().map(Rule::mark).collect())
}

/// The marks of the rules in these answers.
pub fn marks_of(rules: &[NfTablesMessage]) -> Vec<Mark> {
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
    use super::*;
    use crate::net::nft::expressions::{ACCEPT, is_protocol, verdict};

    #[test]
    fn the_mark_of_a_rule_is_its_own_and_a_comment_for_nft() {
        let rule = |chain: &str, protocol| {
            let [load, compare] = is_protocol(protocol);
            Rule::new(chain, "a rule", [load, compare, verdict(ACCEPT, None)])
        };
        let mark = rule("a", 6).mark();
        assert_eq!(mark, rule("a", 6).mark());
        assert_ne!(mark.1, rule("a", 17).mark().1);
        assert_ne!(mark.1, rule("b", 6).mark().1);
        assert_eq!(mark.1[0], COMMENT);
        assert_eq!(usize::from(mark.1[1]), mark.1.len() - 2);
        assert!(mark.1.ends_with(b"\0"));
    }
}
