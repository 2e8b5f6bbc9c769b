//! Edits by the hundred: annotations, labels and status of Services, and the Leases of their claims, a
//! hundred times per second. None of it is a wish, so nothing of it is felt.
//!
//! `make chaos-edits` does it for a minute with twenty Services; the suite for a few seconds with six.

use std::collections::BTreeMap;
use std::env;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service as ServiceObject;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use leasehold_lab::{Cluster, Lab, SYSTEM_NAMESPACE, Service};
use serde_json::{Value, json};
use tokio::time::{interval, sleep};

use crate::scene::{PATIENCE, UDP, annotation, holder_and_transitions};

/// For how many seconds it lasts; then with twenty Services.
const SECONDS: &str = "LEASEHOLD_CHAOS_EDITS";
/// From one edit to the next.
const PAUSE: Duration = Duration::from_millis(10);
/// How many edits are under way at a time.
const LANES: u32 = 16;
/// How often each address is asked.
const PERIOD: Duration = Duration::from_millis(20);
/// Within which time all is as it was.
const SOON: Duration = Duration::from_secs(2);
const NOTED: [&str; 2] = ["leasehold.dev/claim", "leasehold.dev/allocated-from"];
/// What a claim says of itself, but for what is merely told.
const LISTED: [&str; 7] = [
    "leasehold.dev/services",
    "leasehold.dev/service-uids",
    "leasehold.dev/addresses",
    "leasehold.dev/allocated-from",
    "leasehold.dev/interface",
    "leasehold.dev/mac",
    "leasehold.dev/session",
];

/// The choices of a run, the same in each (xorshift, Marsaglia 2003).
struct Choices(u64);

impl Choices {
    fn below(&mut self, count: usize) -> Result<usize> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Ok(usize::try_from(self.0 % u64::try_from(count)?)?)
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> Result<&'a T> {
        all.get(self.below(all.len())?).context("nothing to choose from")
    }
}

/// One edit of one Service or of the claim that is named after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Edit {
    Annotation(&'static str),
    Annotations,
    Labels,
    Replaced,
    Addresses,
    Conditions,
    Status,
    Lease,
    LeaseAnnotation(&'static str),
    LeaseAnnotations,
    LeaseLabels,
}

impl Edit {
    fn any(choices: &mut Choices) -> Result<Self> {
        Ok(match choices.below(16)? {
            0 | 1 => Self::Annotation(choices.of(&NOTED)?),
            2 => Self::Annotations,
            3 => Self::Labels,
            4 | 5 => Self::Replaced,
            6 | 7 => Self::Addresses,
            8 => Self::Conditions,
            9 => Self::Status,
            10 => Self::Lease,
            11..=13 => Self::LeaseAnnotation(choices.of(&LISTED)?),
            14 => Self::LeaseAnnotations,
            _ => Self::LeaseLabels,
        })
    }
}

/// What is edited.
struct Edited {
    services: Api<ServiceObject>,
    leases: Api<Lease>,
    manifests: BTreeMap<String, ServiceObject>,
}

impl Edited {
    async fn carry_out(&self, edit: Edit, service: &str, claim: &str, number: &str) -> Result<()> {
        let none: Option<&str> = None;
        let meta = |field: &str, value: Value| json!({ "metadata": { field: value } });
        let label = || meta("labels", json!({ "edited": number }));
        let (on_service, on_status, on_lease) = match edit {
            Edit::Annotation(name) => {
                (Some(meta("annotations", json!({ name: none }))), None, None)
            }
            Edit::Annotations => (Some(meta("annotations", Value::Null)), None, None),
            Edit::Labels => (Some(label()), None, None),
            Edit::Addresses => (None, Some(json!({ "loadBalancer": { "ingress": null } })), None),
            Edit::Conditions => (None, Some(json!({ "conditions": null })), None),
            Edit::Status => (None, Some(json!({ "loadBalancer": null, "conditions": null })), None),
            Edit::LeaseAnnotation(name) => {
                (None, None, Some(meta("annotations", json!({ name: none }))))
            }
            Edit::LeaseAnnotations => (None, None, Some(meta("annotations", Value::Null))),
            Edit::LeaseLabels => (None, None, Some(label())),
            Edit::Replaced | Edit::Lease => (None, None, None),
        };
        let params = PatchParams::default();
        let result = if let Some(patch) = on_service {
            self.services.patch(service, &params, &Patch::Merge(patch)).await.map(drop)
        } else if let Some(status) = on_status {
            let patch = Patch::Merge(json!({ "status": status }));
            self.services.patch_status(service, &params, &patch).await.map(drop)
        } else if let Some(patch) = on_lease {
            self.leases.patch(claim, &params, &Patch::Merge(patch)).await.map(drop)
        } else if edit == Edit::Replaced {
            let manifest = self.manifests.get(service).context("no manifest")?;
            self.services.replace(service, &PostParams::default(), manifest).await.map(drop)
        } else {
            self.leases.delete(claim, &DeleteParams::default()).await.map(drop)
        };
        match result {
            // Its holder has not made it again yet.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => Ok(result?),
        }
    }

    /// Edits for as long as `lasts`, one after another; returns which.
    async fn lane(&self, lane: u32, services: &[Service], lasts: Duration) -> Result<Vec<Edit>> {
        let mut choices = Choices(0x9e37_79b9_7f4a_7c15 ^ u64::from(lane));
        let (mut turn, begin, mut done) = (interval(PAUSE * LANES), Instant::now(), Vec::new());
        while begin.elapsed() < lasts {
            turn.tick().await;
            let (edit, service) = (Edit::any(&mut choices)?, choices.of(services)?);
            let number = format!("{lane}-{}", done.len());
            self.carry_out(edit, service.name(), &service.claim(), &number).await?;
            done.push(edit);
        }
        Ok(done)
    }
}

/// The owner of a Service where everything is as it should be, or what is not.
async fn owner(
    cluster: &Cluster,
    service: &Service,
    vip: IpAddr,
) -> Result<Result<String, Vec<String>>> {
    let object = service.get().await?;
    let annotations = object.metadata.annotations.unwrap_or_default();
    let Some(claim) = cluster.claim(service).await? else {
        return Ok(Err(vec!["no Lease".to_owned()]));
    };
    let (holder, _) = holder_and_transitions(&claim);
    let conditions = object.status.and_then(|status| status.conditions).unwrap_or_default();
    let addresses = service.addresses().await?;
    let holders: Vec<_> = cluster.holders(vip)?.iter().map(|it| it.name().to_owned()).collect();
    let mut wrong = Vec::new();
    let lacks = |name: &&&str| !annotations.contains_key(**name);
    wrong.extend(NOTED.iter().filter(lacks).map(|name| format!("the Service lacks {name}")));
    let lacks = |name: &&&str| annotation(&claim, name).is_none_or(str::is_empty);
    wrong.extend(LISTED.iter().filter(lacks).map(|name| format!("the Lease lacks {name}")));
    if let Some(withdrawn) = annotation(&claim, "leasehold.dev/withdrawn-addresses") {
        wrong.push(format!("withdrawn: {withdrawn}"));
    }
    if conditions.iter().filter(|it| it.status == "True").count() != 2 {
        wrong.push(format!("conditions: {conditions:?}"));
    }
    if addresses != [vip] {
        wrong.push(format!("addresses: {addresses:?} instead of {vip}"));
    }
    match holder {
        Some(holder) if wrong.is_empty() && holders == [holder.as_str()] => Ok(Ok(holder)),
        holder => {
            wrong.push(format!("the Lease names {holder:?}, {holders:?} have the address"));
            Ok(Err(wrong))
        }
    }
}

pub async fn edits_by_the_hundred_are_not_felt_move_nothing_and_are_mended_within_two_seconds()
-> Result<()> {
    let minute = env::var(SECONDS).ok().map(|text| text.parse()).transpose()?;
    let (lasts, count) =
        minute.map_or((Duration::from_secs(6), 6), |seconds| (Duration::from_secs(seconds), 20));
    // In the suite for whatever machine it is.
    let (soon, least) = if minute.is_some() { (SOON, 50.0) } else { (PATIENCE, 5.0) };
    let lab = Lab::start().await?;
    lab.start_operator(&[])?;
    let cluster = lab.cluster("edits").start().await?;
    cluster.pool(0, count).await?;
    cluster.policy().await?;
    let first = cluster.service("s0").vip(0).create().await?;
    let mut others = Vec::new();
    for number in 1..count {
        let plan = cluster.service(&format!("s{number}")).vip(number);
        others.push(plan.pods_of(&first).create().await?);
    }
    let services: Vec<_> = [first].into_iter().chain(others).collect();
    let mut vips = Vec::new();
    for service in &services {
        vips.push(cluster.ready(service).await?.0);
    }
    // The first telling of who announces them is over, too.
    let mut owners = Vec::new();
    for (service, vip) in services.iter().zip(&vips) {
        let what = format!("{} is whole", service.name());
        let mut found = None;
        cluster
            .eventually(&what, PATIENCE, async || {
                found = owner(&cluster, service, *vip).await?.ok();
                Ok(found.is_some())
            })
            .await?;
        owners.push(found.context("no owner")?);
    }
    let (admin, mut manifests) = (lab.admin(), BTreeMap::new());
    for service in &services {
        let mut object = service.get().await?;
        object.status = None;
        let wish = object.metadata.annotations.unwrap_or_default().into_iter();
        let wish = wish.filter(|(name, _)| !NOTED.contains(&name.as_str()));
        object.metadata.annotations = Some(wish.collect());
        (object.metadata.resource_version, object.metadata.managed_fields) = (None, None);
        manifests.insert(service.name().to_owned(), object);
    }
    let edited = Edited {
        services: Api::namespaced(admin.clone(), cluster.namespace()),
        leases: Api::namespaced(admin, SYSTEM_NAMESPACE),
        manifests,
    };

    let sweep = cluster.client().sweep(&vips, UDP, PERIOD)?;
    sleep(Duration::from_millis(500)).await;
    let begin = Instant::now();
    let lanes = (1..=LANES).map(|lane| edited.lane(lane, &services, lasts));
    let mut done = BTreeMap::new();
    for edit in try_join_all(lanes).await?.into_iter().flatten() {
        *done.entry(edit).or_insert(0_u32) += 1;
    }
    let number: u32 = done.values().sum();
    let (ended, rate) = (Instant::now(), f64::from(number) / begin.elapsed().as_secs_f64());
    println!("    {number} edits, {rate:.0} per second: {done:?}");
    let mut now = Vec::new();
    while ended.elapsed() < soon {
        let all = services.iter().zip(&vips).map(|(it, vip)| owner(&cluster, it, *vip));
        now = try_join_all(all).await?;
        if now.iter().all(Result::is_ok) {
            break;
        }
    }
    println!("    all as before after {} ms", ended.elapsed().as_millis());
    let tracks = sweep.stop().await?;
    let (asked, lost) = tracks
        .values()
        .fold((0, 0), |(asked, lost), track| (asked + track.count(), lost + track.lost()));
    println!("    {lost} of {asked} datagrams lost");
    let felt: Vec<_> = tracks.iter().filter(|(_, track)| track.lost() > 0).collect();
    let moved = now.iter().zip(&owners).filter(|(now, before)| now.as_ref() != Ok(before));
    let moved = moved.count();
    if lost > 0 || moved > 0 {
        let dump = cluster.dump().await;
        anyhow::bail!(
            "{moved} moved or are not whole: {now:?} instead of {owners:?}; {felt:?}\n{dump}"
        );
    }
    ensure!(rate > least, "only {rate:.0} edits per second: the machine is too busy for this");
    Ok(())
}
