//! The announcement's side of the return path: an address is added once its answers leave by its interface.

use std::net::IpAddr;

use tokio::sync::watch;

use crate::datapath::gate::{Held, Waiting};
use crate::datapath::return_path::plan::symmetric;
use crate::datapath::return_path::state::Returned;
use crate::net::rtnl::addresses::AddressChange;
use leasehold_core::clock::Instant;
use leasehold_core::election::Serving;

/// The gate that additions pass.
#[derive(Debug)]
pub struct Gate {
    serving: watch::Receiver<Serving>,
    returned: watch::Receiver<Returned>,
    waiting: Waiting,
}

impl Gate {
    pub(super) fn new(
        serving: watch::Receiver<Serving>,
        returned: watch::Receiver<Returned>,
    ) -> Self {
        Self { serving, returned, waiting: Waiting::default() }
    }

    /// Adds to `held` the additions in `ops` that have to wait.
    pub fn hold(&mut self, now: Instant, ops: &[AddressChange], held: &mut Held) {
        let serving = self.serving.borrow();
        let returned = self.returned.borrow_and_update();
        let is_settled = |ip: &IpAddr| {
            let wanted = serving.vips.get(ip).and_then(symmetric);
            wanted.is_none() || returned.applied.get(ip) == wanted
        };
        self.waiting.hold(now, is_settled, ops, held);
    }

    /// Waits for news of what is in place; the thread has ended where there can be none.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.returned.changed().await
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use leasehold_core::desired::{Announcement, ReturnPath};
    use leasehold_core::election::{Attachment, ServedVip};

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_boot(Duration::from_secs(100) + Duration::from_millis(millis))
    }

    #[test]
    fn an_addition_waits_until_its_answers_leave_by_its_interface_and_not_for_long() {
        let ip = IpAddr::from([192, 0, 2, 1]);
        let add = AddressChange::Add { place: (2, ip), seconds: NonZeroU32::MIN };
        let on = |name: &str| name.parse().unwrap();
        let serving = |return_path| {
            let vip = ServedVip {
                claim: "default.web".parse().unwrap(),
                attachment: Attachment::OnLink { interface: on("eth1") },
                until: at(60_000),
                ownership: 1,
                announcement: Announcement::default(),
                return_path,
            };
            Serving { vips: [(ip, vip)].into(), ..Serving::default() }
        };
        for (name, return_path, applied, passes) in [
            ("by the routes of the node", ReturnPath::Default, None, true),
            ("nothing was done yet", ReturnPath::Symmetric, None, false),
            ("it is on another interface", ReturnPath::Symmetric, Some("eth0"), false),
            ("it is in place", ReturnPath::Symmetric, Some("eth1"), true),
        ] {
            let (_serving, receiver) = watch::channel(serving(return_path));
            let applied = applied.map(|name| (ip, on(name))).into_iter().collect();
            let (_returned, view) = watch::channel(Returned { applied, ..Returned::default() });
            let mut gate = Gate::new(receiver, view);
            let mut ops = vec![add];
            let mut held = Held::default();
            gate.hold(at(0), &ops, &mut held);
            let until = held.take_out(&mut ops);
            assert_eq!(ops.len(), usize::from(passes), "{name}");
            assert_eq!(until, (!passes).then_some(at(50)), "{name}");
            let mut ops = vec![add];
            let mut held = Held::default();
            gate.hold(at(50), &ops, &mut held);
            assert_eq!(held.take_out(&mut ops), None, "{name}");
            assert_eq!(ops, [add], "{name}: no longer than 50 ms");
        }
    }
}
