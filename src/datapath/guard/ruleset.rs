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

use netlink_packet_netfilter::nftables::{
    ChainAttribute, Expressions, InetHookNumber, MetaKey, NfTablesMessage, Operator, SetFlags,
    Verdict,
};

use crate::net::nft::expressions::{
    ACCEPT, DROP, FIRST, NETWORK_HEADER, compare, counter, destination, fragment_header, is_family,
    is_protocol, lookup, mask, meta, payload, verdict,
};
use crate::net::nft::family::Family;
use crate::net::nft::rules::{
    self as nft, INET_PROTO, INET_SERVICE, Rule, is_awake, is_hooked, marks, marks_of,
};

/// The name of the table.
pub const TABLE: &str = "leasehold";
const BASE_CHAIN: &str = "prerouting";

/// `NF_IP_PRI_RAW` (`linux/netfilter_ipv4.h`), the same for IPv6.
const PRIORITY: i32 = -300;
/// The loopback device is the first of each network namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

/// The set of protected addresses.
pub(super) const fn addresses(family: Family) -> &'static str {
    family.of_two("addresses4", "addresses6")
}

/// The set of the ports that may be reached.
pub(super) const fn ports(family: Family) -> &'static str {
    family.of_two("ports4", "ports6")
}

/// The chain for what goes to a protected address.
const fn guard(family: Family) -> &'static str {
    family.of_two("guard4", "guard6")
}

fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    for family in Family::ALL {
        let chain = guard(family);
        let mut open = is_family(family).to_vec();
        open.extend(destination(family));
        open.extend([lookup(ports(family)), verdict(ACCEPT, None)]);
        rules.push(Rule::new(chain, "ports of the Services", open));
        let mut control = is_protocol(family.control()).to_vec();
        control.push(verdict(ACCEPT, None));
        rules.push(Rule::new(chain, "ICMP", control));
        rules.push(Rule::new(chain, "fragments but the first", later_fragments(family)));
        let drop = [counter(), verdict(DROP, None)];
        rules.push(Rule::new(chain, "what is not of the Services", drop));
    }
    let own = [
        meta(MetaKey::Iif, FIRST),
        compare(Operator::Equal, &LOOPBACK.to_ne_bytes()),
        verdict(ACCEPT, None),
    ];
    rules.push(Rule::new(BASE_CHAIN, "from this node", own));
    for family in Family::ALL {
        let mut guarded = is_family(family).to_vec();
        guarded.extend([
            payload(NETWORK_HEADER, family.destination(), family.length(), FIRST),
            lookup(addresses(family)),
            verdict(Verdict::Goto, Some(guard(family))),
        ]);
        rules.push(Rule::new(BASE_CHAIN, "to an address of Services", guarded));
    }
    rules
}

fn later_fragments(family: Family) -> Vec<Expressions> {
    let (load, bits) = match family {
        Family::V4 => (payload(NETWORK_HEADER, 6, 2, FIRST), [0x1f, 0xff]),
        Family::V6 => (fragment_header(2, 2), [0xff, 0xf8]),
    };
    let mut expressions = is_family(family).to_vec();
    expressions.extend([
        load,
        mask(&bits),
        compare(Operator::NotEqual, &[0, 0]),
        verdict(ACCEPT, None),
    ]);
    expressions
}

/// Everything in the table but elements, in the order in which it is made.
pub(super) fn skeleton() -> Vec<(&'static str, NfTablesMessage)> {
    let mut messages = Vec::new();
    for (family, number) in Family::ALL.into_iter().zip(0..) {
        let address = (family.key_type(), family.length());
        let port = (((address.0 << 6) | INET_PROTO) << 6 | INET_SERVICE, address.1 + 8);
        let (first, second) = (2 * number + 1, 2 * number + 2);
        let mut set = |name, id, key, flags| {
            messages.push(("a set", nft::set(TABLE, name, id, key, flags, Vec::new())));
        };
        set(addresses(family), first, address, SetFlags::Timeout);
        set(ports(family), second, port, SetFlags::empty());
        messages.push(("a chain", nft::chain(TABLE, guard(family), Vec::new())));
    }
    messages.push(("a chain", nft::chain(TABLE, BASE_CHAIN, hook())));
    messages.extend(rules().into_iter().map(|rule| ("a rule", rule.message(TABLE))));
    messages
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
    table: &NfTablesMessage,
    chain: Option<&NfTablesMessage>,
    rules: &[NfTablesMessage],
) -> bool {
    let is_base = |chain| is_hooked(chain, &hook());
    is_awake(table) && chain.is_some_and(is_base) && marks_of(rules) == marks(&self::rules())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use netlink_packet_netfilter::nftables::{Hook, RuleAttribute, TableAttribute, TableFlags};

    use super::*;

    /// The answers of the kernel.
    fn answers() -> (NfTablesMessage, NfTablesMessage, Vec<NfTablesMessage>) {
        let mut table = nft::table(TABLE);
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
        let marks: BTreeSet<_> = all.iter().map(Rule::mark).collect();
        assert_eq!(marks.len(), all.len());
    }
}
