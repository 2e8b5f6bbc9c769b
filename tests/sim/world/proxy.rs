//! The kube-proxies of the hosts, and the state of their data paths.

use leasehold_core::clock::Instant;
use leasehold_core::election::{DataPathView, Event, ProxyHealth, ProxyView, Rules, RulesWatch};

use super::{Happening, WIRE, World};

/// A host's kube-proxy.
#[derive(Debug, Default)]
pub(crate) struct KubeProxy {
    /// Since when it answers nothing, by its host's clock.
    silent: Option<Instant>,
    /// It has no rules but old ones.
    late: bool,
    /// What the process asks for.
    pub(crate) asked: RulesWatch,
}

impl KubeProxy {
    fn view(&self) -> ProxyView {
        let rules = if self.late { Rules::Absent } else { Rules::Present };
        ProxyView {
            health: self.silent.map_or(ProxyHealth::Answers, |since| ProxyHealth::Silent { since }),
            is_kube_proxy: true,
            rules: self
                .asked
                .iter()
                .map(|(name, question)| (name.clone(), (question.number, rules)))
                .collect(),
        }
    }
}

impl World {
    /// Every host has a kube-proxy that answers.
    pub(crate) fn give_proxies(&mut self) {
        for id in 0..self.hosts.len() {
            self.hosts[id].proxy = Some(KubeProxy::default());
            self.tell_proxy(id);
        }
    }

    /// Whether that of a host answers nothing.
    pub(crate) fn set_proxy_silent(&mut self, id: usize, silent: bool) {
        self.tell_all(&format!("kube-proxy of {} is silent: {silent}", self.hosts[id].name));
        let now = self.hosts[id].clock.at(self.now);
        if let Some(proxy) = &mut self.hosts[id].proxy {
            proxy.silent = silent.then_some(now);
        }
        self.tell_proxy(id);
    }

    /// Whether that of a host follows nothing.
    pub(crate) fn set_rules_late(&mut self, id: usize, late: bool) {
        self.tell_all(&format!("kube-proxy of {} is late: {late}", self.hosts[id].name));
        if let Some(proxy) = &mut self.hosts[id].proxy {
            proxy.late = late;
        }
        self.tell_proxy(id);
    }

    /// The data path of a host is in this state.
    pub(crate) fn set_data_path(&mut self, id: usize, view: DataPathView) {
        if self.hosts[id].data_path != view {
            self.tell_all(&format!("data path of {}: {view:?}", self.hosts[id].name));
            self.hosts[id].data_path = view;
            self.tell_data_path(id);
        }
    }

    /// Tells the process of a host so.
    pub(super) fn tell_data_path(&mut self, id: usize) {
        let event = Event::DataPath(self.hosts[id].data_path);
        self.send(WIRE, id, Happening::Event(event));
    }

    /// Tells the process of a host what is to be known of its kube-proxy, if it has one.
    pub(super) fn tell_proxy(&mut self, id: usize) {
        if let Some(proxy) = &self.hosts[id].proxy {
            let event = Event::Proxy(proxy.view());
            self.send(WIRE, id, Happening::Event(event));
        }
    }
}
