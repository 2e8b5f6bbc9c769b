//! Links that lead out of the node.
//!
//! A node has links of its own making beside those to its network: bridges and veths to containers,
//! tunnels, dummies. An address is announced there only if a policy names the interface. All others lead
//! out:
//!
//! * hardware, which has no kind, and what is made of it: bonds, VLANs, and bridges with such a port;
//! * any link with a default route, whatever it is made of;
//! * where the node is itself a container, which has no hardware, the ends that lead out of it.

use crate::net::rtnl::links::{Link, Links};

/// The greatest depth of stacked links: a VLAN on a bridge on a bond is three.
const DEPTH: usize = 8;

/// The parts of which a link is made, by its kind (`IFLA_INFO_KIND`).
enum Made {
    /// Hardware.
    Itself,
    /// Of its ports: a bond.
    OfPorts,
    /// Of its ports, which may be the node's own and those of containers: a bridge.
    OfSomePorts,
    /// Of the link below.
    OnLower,
    /// One end of two, or a share of a link: in a container it leads out.
    End,
    /// Of nothing.
    Up,
}

fn made(kind: Option<&str>) -> Made {
    match kind {
        None => Made::Itself,
        Some("bond" | "team") => Made::OfPorts,
        Some("bridge") => Made::OfSomePorts,
        Some("vlan") => Made::OnLower,
        Some("veth" | "macvlan" | "macvtap" | "ipvlan") => Made::End,
        Some(_) => Made::Up,
    }
}

impl Links {
    /// Whether an interface announces where no policy names it.
    pub fn leads_out(&self, link: &Link) -> bool {
        // Of several default routes any counts: the others are for when the best is gone.
        !link.gateways.is_empty() || link.default_routes.any() || {
            let is_hardware = |link: &Link| matches!(made(link.kind.as_deref()), Made::Itself);
            let contained = !self.0.values().any(|link| !link.loopback && is_hardware(link));
            self.is_of_hardware(link, contained, DEPTH)
        }
    }

    /// Whether a link is hardware, or made of it; in a container, of an end that leads out.
    fn is_of_hardware(&self, link: &Link, contained: bool, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        let mut ports = self.0.values().filter(|port| port.master == Some(link.index));
        match made(link.kind.as_deref()) {
            Made::Itself => !link.loopback,
            Made::OfPorts => ports.any(|port| self.is_of_hardware(port, contained, depth)),
            // In a container the veths of a bridge are those of further containers.
            Made::OfSomePorts => ports.any(|port| self.is_of_hardware(port, false, depth)),
            Made::OnLower => match link.lower.and_then(|index| self.by_index(index)) {
                Some(lower) => self.is_of_hardware(lower, contained, depth),
                None => contained,
            },
            // The other end of a pair within is no way out.
            Made::End => contained && link.lower.is_none(),
            Made::Up => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use leasehold_crds::lease::{DefaultRoutes, Detours};
    use leasehold_crds::names::InterfaceName;
    use pnet_base::MacAddr;

    use super::*;

    /// A link: name, kind, master and lower by name.
    type Row = (&'static str, &'static str, &'static str, &'static str);

    fn links(rows: &[Row]) -> Links {
        let index = |name: &str| {
            let place = rows.iter().position(|row| row.0 == name);
            place.map(|place| u32::try_from(place).unwrap() + 1)
        };
        let link = |(name, kind, master, lower): &Row| {
            let name: InterfaceName = name.parse().unwrap();
            let link = Link {
                index: index(name.as_str()).unwrap(),
                name: name.clone(),
                mac: MacAddr::new(2, 0, 0, 0, 0, 1),
                mtu: 1500,
                carrier: true,
                kind: (!kind.is_empty()).then(|| (*kind).to_owned()),
                master: index(master),
                lower: index(lower),
                loopback: name.as_str() == "lo",
                addresses: Vec::new(),
                gateways: Vec::new(),
                default_routes: DefaultRoutes::NONE,
                detours: Detours::default(),
            };
            (name, link)
        };
        Links(rows.iter().map(link).collect())
    }

    fn leading_out(links: &Links) -> Vec<&str> {
        let out = links.0.values().filter(|link| links.leads_out(link));
        out.map(|link| link.name.as_str()).collect()
    }

    #[test]
    fn hardware_leads_out_and_what_is_made_of_it() {
        let rows = [
            ("lo", "", "", ""),
            ("eth0", "", "bond0", ""),
            ("eth1", "", "bond0", ""),
            ("eth2", "", "br0", ""),
            ("bond0", "bond", "", ""),
            ("bond0.7", "vlan", "br7", "bond0"),
            ("br7", "bridge", "", ""),
            ("vm7", "tun", "br7", ""),
            ("br0", "bridge", "", ""),
            ("br0.9", "vlan", "", "br0"),
        ];
        let expected =
            ["bond0", "bond0.7", "br0", "br0.9", "br7", "eth0", "eth1", "eth2"].as_slice();
        assert_eq!(leading_out(&links(&rows)), expected);
    }

    #[test]
    fn what_is_for_containers_and_tunnels_does_not() {
        let rows = [
            ("lo", "", "", ""),
            ("eth0", "", "", ""),
            ("docker0", "bridge", "", ""),
            ("cni0", "bridge", "", ""),
            ("pod1", "veth", "cni0", ""),
            ("pod2", "veth", "", ""),
            ("vnet0", "tun", "virbr0", ""),
            ("virbr0", "bridge", "", ""),
            ("virbr0.5", "vlan", "", "virbr0"),
            ("tap0", "tun", "", ""),
            ("wg0", "wireguard", "", ""),
            ("flannel.1", "vxlan", "", ""),
            ("kube-ipvs0", "dummy", "", ""),
            ("ipvl0", "ipvlan", "", "eth0"),
            ("shim", "macvlan", "", "eth0"),
            ("antrea-gw0", "openvswitch", "", ""),
            ("mirror", "vlan", "", "mirror"),
        ];
        assert_eq!(leading_out(&links(&rows)), ["eth0"]);
    }

    #[test]
    fn a_link_with_a_default_route_leads_out_whatever_it_is() {
        let mut links = links(&[("eth0", "", "", ""), ("br-ex", "openvswitch", "", "")]);
        assert_eq!(leading_out(&links), ["eth0"]);
        let gateway: IpAddr = "192.0.2.254".parse().unwrap();
        links.0.get_mut(&"br-ex".parse().unwrap()).unwrap().gateways.push(gateway);
        assert_eq!(leading_out(&links), ["br-ex", "eth0"]);
    }

    #[test]
    fn a_node_that_is_a_container_is_led_out_by_its_ends_of_pairs() {
        let rows = [
            ("lo", "", "", ""),
            ("tunl0", "ipip", "", ""),
            ("eth0", "veth", "", ""),
            ("eth0.5", "vlan", "", "eth0"),
            ("lan1", "macvlan", "", ""),
            ("cni0", "bridge", "", ""),
            ("pod1", "veth", "cni0", ""),
            ("one", "veth", "", "other"),
            ("other", "veth", "", "one"),
        ];
        assert_eq!(leading_out(&links(&rows)), ["eth0", "eth0.5", "lan1", "pod1"]);
    }
}
