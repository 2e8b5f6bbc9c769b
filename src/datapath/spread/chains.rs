//! The chains that decide by the bucket of a packet, as content.
//!
//! A chain is named after its content: it is never changed, addresses with the same nodes share it, and whether it is
//! there is all there is to know of it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use leasehold_core::election::{BUCKETS, Hop, Layout, Order, Way};
use pnet_base::MacAddr;

use crate::net::nft::family::Family;
use crate::net::rtnl::links::Links;

/// A node that packets are sent to: an address of its own, and the index of the interface on which it is met.
pub type Target = (IpAddr, u32);

/// The parts of a packet that its bucket follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The family of the addresses.
    pub family: Family,
    /// Whether the port of the client does not count.
    pub by_client: bool,
}

/// A chain, but for its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Chain {
    /// Packets of clients go to the node of their bucket.
    Dispatch(Dispatch),
    /// Packets of connections that this node does not know go on to a node that may.
    Chance(Chance),
}

/// The nodes to which clients' packets go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dispatch {
    /// The parts that the bucket follows from.
    pub key: Key,
    /// The nodes by the bucket: none where it is this node, or where this node may have connections of it.
    pub to: BTreeMap<u16, Target>,
}

/// The nodes to which packets go that are not known here, and begin no connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chance {
    /// The parts that the bucket follows from.
    pub key: Key,
    /// The buckets that other nodes have and this one has had: what clients send goes there unless it is known here.
    pub late: Option<Late>,
    /// The sender of each bucket whose packets end here.
    pub end: Vec<(u16, MacAddr)>,
    /// The sender of each bucket whose packets go on, and where.
    pub back: BTreeMap<(u16, MacAddr), Target>,
    /// Where those of clients go on.
    pub onward: BTreeMap<u16, Target>,
    /// Whether other packets of clients stay here: this node is the owner.
    pub owns: bool,
}

/// Packets of clients by an interface of this node go to other nodes, unless their connection is known here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Late {
    /// The index of the interface.
    pub interface: u32,
    /// The nodes by the bucket.
    pub to: BTreeMap<u16, Target>,
}

const DISPATCH: &str = "to-";
const CHANCE: &str = "chance-";
/// The beginnings of the names of such chains, and of their sets.
pub const BY_BUCKET: [&str; 2] = [DISPATCH, CHANCE];

impl Chain {
    /// The name of the chain.
    pub fn name(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        let number = hasher.finish();
        match self {
            Self::Dispatch(_) => format!("{DISPATCH}{number:016x}"),
            Self::Chance(_) => format!("{CHANCE}{number:016x}"),
        }
    }
}

/// The reading of a layout by this node.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The parts that the bucket follows from.
    pub key: Key,
    /// The layout.
    pub layout: &'a Layout,
    /// The links of this node.
    pub links: &'a Links,
}

impl Reading<'_> {
    /// Each bucket, with its nodes.
    fn buckets(&self) -> impl Iterator<Item = (u16, Order)> + '_ {
        let known = self.layout.buckets.iter().copied();
        (0..BUCKETS).zip(known.chain(std::iter::repeat(Order::default())))
    }

    /// Where a node is met, unless it is of another family or its interface is not there.
    fn target(&self, hop: &Hop) -> Option<Target> {
        let link = self.links.get(&hop.interface).filter(|_| self.key.family.has(hop.to))?;
        Some((hop.to, link.index))
    }

    /// The node that has a bucket, where that is another one that can be reached.
    fn other(&self, order: &Order) -> Option<Target> {
        match &self.layout.target(order)?.way {
            Way::To(hop) => self.target(hop),
            Way::Here | Way::None => None,
        }
    }

    fn others(&self, ours: bool) -> BTreeMap<u16, Target> {
        let its = self.buckets().filter(|(_, order)| self.layout.is_ours(order) == ours);
        its.filter_map(|(bucket, order)| Some((bucket, self.other(&order)?))).collect()
    }

    /// The dispatch of what comes from clients.
    pub fn dispatch(&self) -> Chain {
        Chain::Dispatch(Dispatch { key: self.key, to: self.others(false) })
    }

    /// The second chance, on a node that dispatches what clients send by `interface`, if any.
    pub fn chance(&self, interface: Option<u32>) -> Chain {
        let mut chance = Chance {
            key: self.key,
            late: interface.map(|interface| Late { interface, to: self.others(true) }),
            end: Vec::new(),
            back: BTreeMap::new(),
            onward: BTreeMap::new(),
            owns: self.layout.is_owned(),
        };
        chance.late.take_if(|late| late.to.is_empty());
        for (bucket, order) in self.buckets() {
            self.add(bucket, &order, &mut chance);
        }
        Chain::Chance(chance)
    }

    fn add(&self, bucket: u16, order: &Order, chance: &mut Chance) {
        let Some(unknown) = self.layout.unknown(order) else { return };
        let next = unknown.next.and_then(|hop| self.target(hop));
        let macs = unknown.before.into_iter().flat_map(|before| &before.macs);
        let senders = macs.map(|mac| (bucket, *mac));
        match next {
            Some(next) => chance.back.extend(senders.map(|sender| (sender, next))),
            None => chance.end.extend(senders),
        }
        let late = chance.late.as_ref().is_some_and(|late| late.to.contains_key(&bucket));
        let onward = next.filter(|_| unknown.clients && !late);
        chance.onward.extend(onward.map(|next| (bucket, next)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::spread::plan::testing::{hop, layout, mac};
    use crate::net::rtnl::links::testing::links;

    const V4: Key = Key { family: Family::V4, by_client: false };

    /// The readings of buckets by the first of the members, `a`: `b` and `c` are others, and `d` is gone.
    fn read(orders: &[&[u16]], interface: Option<u32>) -> (Dispatch, Chance) {
        read_of(Some(0), orders, interface)
    }

    /// The same where the owner is this one of them.
    fn read_of(
        owner: Option<u16>,
        orders: &[&[u16]],
        interface: Option<u32>,
    ) -> (Dispatch, Chance) {
        let ways = [Way::Here, Way::To(hop(12, 1)), Way::To(hop(13, 1)), Way::None];
        let layout = Layout { owner, ..layout(&ways, orders) };
        let links = links([1]);
        let reading = Reading { key: V4, layout: &layout, links: &links };
        match (reading.dispatch(), reading.chance(interface)) {
            (Chain::Dispatch(dispatch), Chain::Chance(chance)) => (dispatch, chance),
            other => panic!("{other:?}"),
        }
    }

    fn target(host: u8) -> Target {
        (IpAddr::from([192, 0, 2, host]), 10)
    }

    #[test]
    fn what_clients_send_goes_to_the_node_of_its_bucket_unless_it_may_be_known_here() {
        let orders: &[&[u16]] = &[&[0], &[1], &[2, 1], &[1, 0], &[3], &[3, 0], &[0, 2], &[]];
        let (dispatch, chance) = read(orders, Some(7));
        assert_eq!(dispatch.to, [(1, target(12)), (2, target(13))].into());
        let late = chance.late.unwrap();
        assert_eq!((late.interface, late.to), (7, [(3, target(12))].into()));
        assert_eq!(read(orders, None).1.late, None, "not dispatched here");
        assert_eq!(read(&[&[0], &[1]], Some(7)).1.late, None, "nothing to ask for");
    }

    #[test]
    fn what_is_not_known_goes_from_the_owner_on_in_the_order_of_its_bucket() {
        let orders: &[&[u16]] = &[
            &[0],
            &[0, 1, 2],
            &[1, 0],
            &[1, 0, 2],
            &[1, 2],
            &[3, 0],
            &[3, 1],
            &[2, 0],
            &[2, 0, 3],
        ];
        let (_, chance) = read_of(Some(1), orders, None);
        let end = [(0, 1), (2, 1), (5, 1), (7, 2), (8, 2)];
        assert_eq!(chance.end, end.map(|(bucket, member)| (bucket, mac(member))));
        assert_eq!(chance.back, [((1, mac(1)), target(13)), ((3, mac(1)), target(13))].into());
        assert_eq!((chance.onward, chance.owns), (BTreeMap::new(), false));

        let (_, chance) = read_of(Some(0), orders, None);
        let onward = [(1, 12), (2, 12), (3, 12), (4, 12), (6, 12), (7, 13), (8, 13)];
        assert_eq!(chance.onward, onward.map(|(bucket, host)| (bucket, target(host))).into());
        assert_eq!((chance.end, chance.back), Default::default(), "it comes from nobody else");
        assert!(chance.owns);

        let (_, chance) = read_of(None, orders, None);
        assert_eq!((chance.end, chance.back, chance.onward), Default::default());
    }

    #[test]
    fn a_node_that_is_met_nowhere_is_sent_nothing() {
        let six: IpAddr = "2001:db8::12".parse().unwrap();
        let other = Hop { to: six, ..hop(12, 1) };
        let ways = [Way::Here, Way::To(hop(12, 2)), Way::To(other)];
        let layout = layout(&ways, &[&[1], &[2], &[0, 1], &[0, 2]]);
        let links = links([1]);
        let reading = Reading { key: V4, layout: &layout, links: &links };
        let (Chain::Dispatch(dispatch), Chain::Chance(chance)) =
            (reading.dispatch(), reading.chance(None))
        else {
            panic!()
        };
        assert_eq!((dispatch.to, chance.onward), Default::default());
    }

    #[test]
    fn chains_with_another_content_have_another_name() {
        let (dispatch, chance) = read(&[&[1]], None);
        let by_client = Dispatch { key: Key { by_client: true, ..V4 }, ..dispatch.clone() };
        let late = read(&[&[1, 0]], Some(7)).1;
        let chains = [
            Chain::Dispatch(dispatch),
            Chain::Dispatch(by_client),
            Chain::Chance(chance),
            Chain::Chance(late),
        ];
        let names: std::collections::BTreeSet<_> = chains.iter().map(Chain::name).collect();
        assert_eq!(names.len(), chains.len());
    }
}
