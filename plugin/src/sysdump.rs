//! `sysdump`: everything that somebody needs who looks into a problem, in one archive. No Secrets are
//! read. What cannot be read is said in `errors.txt` of the archive.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::LogParams;
use kube::{Api, Resource, ResourceExt};
use leasehold::api::causes;
use leasehold::version;
use leasehold_core::explain::{Story, View, World, explain};
use leasehold_crds::{AnnouncementPolicy, IPAddressPool};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::args::SysdumpArguments;
use super::connect::Cluster;
use super::error::PluginError;
use super::outcome::Outcome;
use super::{check, explaining, operator, output, owners, read, status};

/// An annotation that tools keep beside objects and that is of no use here.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The mark of our own events.
const CONTROLLERS: &str = "leasehold";

/// An archive in the making.
struct Archive<W: Write> {
    tar: tar::Builder<GzEncoder<W>>,
    /// The folder in it.
    root: String,
    /// The time at which its files were made, in seconds since 1970.
    seconds: u64,
    errors: Vec<String>,
}

impl<W: Write> Archive<W> {
    fn new(out: W, root: String, seconds: u64) -> Self {
        let tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        Self { tar, root, seconds, errors: Vec::new() }
    }

    fn add(&mut self, name: &str, content: &str) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(content.len()).unwrap_or(u64::MAX));
        header.set_mode(0o600);
        header.set_mtime(self.seconds);
        header.set_cksum();
        let path = format!("{}/{name}", self.root);
        self.tar.append_data(&mut header, path, content.as_bytes())
    }

    /// Adds what was read, or notes why it was not.
    fn add_read(&mut self, name: &str, read: Result<String, PluginError>) -> io::Result<()> {
        match read {
            Ok(content) => self.add(name, &content),
            Err(error) => {
                self.errors.push(format!("{name}: {}", causes(&error)));
                Ok(())
            }
        }
    }

    fn finish(mut self) -> io::Result<W> {
        if !self.errors.is_empty() {
            let errors = self.errors.join("\n") + "\n";
            self.add("errors.txt", &errors)?;
        }
        self.tar.into_inner()?.finish()
    }
}

pub(super) async fn run(
    cluster: &Cluster,
    asked: &SysdumpArguments,
) -> Result<Outcome, PluginError> {
    let now = output::now();
    let root = format!("leasehold-sysdump-{}", now.strftime("%Y%m%d-%H%M%S"));
    let path = asked.file.clone().unwrap_or_else(|| PathBuf::from(format!("{root}.tar.gz")));
    // Whether there is anything to read is known before a file is made.
    cluster.call("read the version", cluster.client.apiserver_version()).await?;
    let file = |source| PluginError::File { path: path.clone(), source };
    let out = create(&path)?;
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let mut archive = Archive::new(out, root, seconds);
    objects(cluster, &mut archive).await.map_err(file)?;
    answers(cluster, &mut archive).await.map_err(file)?;
    pods(cluster, asked.log_lines, &mut archive).await.map_err(file)?;
    let missing = archive.errors.len();
    archive.finish().and_then(|out| out.sync_all()).map_err(file)?;
    output::print(&format!("{}\n", path.display()))?;
    if missing > 0 {
        output::note(&format!("{missing} parts could not be read: see errors.txt in the archive"));
    }
    Ok((missing == 0).into())
}

/// A file that was not there, for this user's eyes alone: annotations and logs may tell what is not for all.
fn create(path: &Path) -> Result<File, PluginError> {
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    created.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => PluginError::Usage(format!(
            "{} already exists: choose another file with --file",
            path.display()
        )),
        _ => PluginError::File { path: path.to_owned(), source },
    })
}

async fn objects<W: Write>(cluster: &Cluster, archive: &mut Archive<W>) -> io::Result<()> {
    let client = || cluster.client.clone();
    archive.add_read("versions.json", versions(cluster).await)?;
    let nodes: Api<Node> = Api::all(client());
    archive.add_read("nodes.yaml", dump(cluster, nodes, |_| true).await)?;
    let services: Api<Service> = Api::all(client());
    let balanced = |it: &Service| {
        it.spec.as_ref().is_some_and(|spec| spec.type_.as_deref() == Some("LoadBalancer"))
    };
    archive.add_read("services.yaml", dump(cluster, services, balanced).await)?;
    let slices: Api<EndpointSlice> = Api::all(client());
    archive.add_read("endpointslices.yaml", dump(cluster, slices, |_| true).await)?;
    let pools: Api<IPAddressPool> = Api::all(client());
    archive.add_read("ipaddresspools.yaml", dump(cluster, pools, |_| true).await)?;
    let policies: Api<AnnouncementPolicy> = Api::all(client());
    archive.add_read("announcementpolicies.yaml", dump(cluster, policies, |_| true).await)?;
    let claims: Api<Lease> = Api::namespaced(client(), &cluster.system);
    archive.add_read("leases-claims.yaml", dump(cluster, claims, |_| true).await)?;
    let sessions: Api<Lease> = Api::namespaced(client(), &cluster.sessions);
    archive.add_read("leases-sessions.yaml", dump(cluster, sessions, |_| true).await)?;
    let events: Api<Event> = Api::all(client());
    let (system, own) = (cluster.system.clone(), cluster.sessions.clone());
    let ours = move |event: &Event| {
        let namespace = event.namespace();
        let reporter = event.reporting_controller.as_deref().unwrap_or_default();
        namespace.as_ref().is_some_and(|it| *it == system || *it == own)
            || reporter.contains(CONTROLLERS)
    };
    archive.add_read("events.yaml", dump(cluster, events, ours).await)?;
    let sets: Api<DaemonSet> = Api::namespaced(client(), &cluster.system);
    archive.add_read("daemonsets.yaml", dump(cluster, sets, |_| true).await)?;
    let deployments: Api<Deployment> = Api::namespaced(client(), &cluster.system);
    archive.add_read("deployments.yaml", dump(cluster, deployments, |_| true).await)
}

/// Adds the answers of this plugin itself.
async fn answers<W: Write>(cluster: &Cluster, archive: &mut Archive<W>) -> io::Result<()> {
    match read::objects(cluster).await {
        Ok(objects) => {
            let world = World::of(&objects);
            let view = View::new(&world);
            let stories = world.services.iter().filter(|(_, row)| row.ours);
            let stories: Vec<Story> =
                stories.filter_map(|(name, _)| explain(&view, name)).collect();
            let operator = operator::look(cluster, &objects.claims).await;
            let status = operator.map(|operator| status::status(&objects, &view, &operator));
            archive.add_read("status.json", status.and_then(|status| document(&status)))?;
            archive.add_read("owners.json", document(&owners::rows(&view, None)))?;
            archive.add_read("explain.json", document(&stories))?;
            let now = output::now();
            let texts = stories.iter().map(|story| explaining::text(story, now));
            let text = texts.collect::<Vec<_>>().join("\n");
            let plain = anstream::adapter::strip_str(&text).to_string();
            archive.add("explain.txt", &plain)?;
        }
        Err(error) => archive.errors.push(format!("status, owners, explain: {}", causes(&error))),
    }
    let findings = check::findings(cluster).await.and_then(|findings| document(&findings));
    archive.add_read("check.json", findings)
}

/// The pods of our namespace, and what their containers log and logged before.
async fn pods<W: Write>(cluster: &Cluster, lines: i64, archive: &mut Archive<W>) -> io::Result<()> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.system);
    let pods = match read::list(cluster, api.clone()).await {
        Ok(pods) => pods,
        Err(error) => {
            archive.errors.push(format!("pods: {}", causes(&error)));
            return Ok(());
        }
    };
    archive.add_read("pods.yaml", yaml(&pods))?;
    for pod in &pods {
        let name = pod.name_any();
        let statuses = pod.status.iter().flat_map(|it| it.container_statuses.iter().flatten());
        for status in statuses {
            let container = &status.name;
            for previous in [false, true] {
                if previous && status.restart_count == 0 {
                    continue;
                }
                let params = LogParams {
                    container: Some(container.clone()),
                    previous,
                    tail_lines: Some(lines),
                    timestamps: true,
                    ..LogParams::default()
                };
                let end = if previous { ".previous.log" } else { ".log" };
                let doing = format!("read the log of {name}");
                let log = cluster.call(doing, api.logs(&name, &params)).await;
                archive.add_read(&format!("logs/{name}/{container}{end}"), log)?;
            }
        }
    }
    Ok(())
}

async fn versions(cluster: &Cluster) -> Result<String, PluginError> {
    let server = cluster.call("read the version", cluster.client.apiserver_version()).await?;
    document(&json!({
        "kubernetes": server.git_version,
        "platform": server.platform,
        "plugin": version::line(),
    }))
}

fn document(value: &impl Serialize) -> Result<String, PluginError> {
    serde_json::to_string_pretty(value).map_err(|error| PluginError::Format(error.to_string()))
}

/// The objects of a kind that `wanted` wants, as YAML.
async fn dump<K>(
    cluster: &Cluster,
    api: Api<K>,
    wanted: impl Fn(&K) -> bool,
) -> Result<String, PluginError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let mut objects = read::list(cluster, api).await?;
    objects.retain(wanted);
    yaml(&objects)
}

/// Objects as YAML, without what only servers and tools read.
fn yaml<K: Serialize>(objects: &[K]) -> Result<String, PluginError> {
    let error = |error: &dyn std::error::Error| PluginError::Format(error.to_string());
    let mut value = serde_json::to_value(objects).map_err(|e| error(&e))?;
    for object in value.as_array_mut().into_iter().flatten() {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
            if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                annotations.remove(APPLIED);
            }
        }
    }
    serde_yaml_ng::to_string(&value).map_err(|e| error(&e))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn an_archive_has_what_was_read_and_why_the_rest_was_not() {
        let mut archive = Archive::new(Vec::new(), "dump".to_owned(), 1);
        archive.add("a.txt", "content").unwrap();
        archive.add_read("b.txt", Err(PluginError::NotInstalled("IPAddressPools"))).unwrap();
        let written = archive.finish().unwrap();
        let mut read = tar::Archive::new(flate2::read::GzDecoder::new(&written[..]));
        let files: Vec<(String, String)> = read
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (entry.path().unwrap().display().to_string(), text)
            })
            .collect();
        assert_eq!(files[0], ("dump/a.txt".to_owned(), "content".to_owned()));
        assert_eq!(files[1].0, "dump/errors.txt");
        assert!(files[1].1.starts_with("b.txt: the cluster has no CRD for IPAddressPools"));
    }

    #[test]
    fn an_archive_is_for_its_user_alone_and_overwrites_nothing() {
        use std::os::unix::fs::PermissionsExt as _;

        let path = std::env::temp_dir().join(format!("leasehold-sysdump-{}", std::process::id()));
        let made = create(&path).and_then(|file| {
            let metadata = file.metadata();
            metadata.map_err(|source| PluginError::File { path: path.clone(), source })
        });
        let again = create(&path).map_err(|error| (error.exit_code(), error.to_string()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(made.unwrap().permissions().mode() & 0o777, 0o600);
        let (code, text) = again.unwrap_err();
        assert_eq!(code, 2);
        assert!(text.ends_with(" already exists: choose another file with --file"));
    }

    #[test]
    fn objects_are_written_without_what_only_servers_and_tools_read() {
        let object = json!({ "metadata": { "name": "a", "managedFields": [{}],
            "annotations": { APPLIED: "{}", "kept": "so" } } });
        assert_eq!(
            yaml(&[object]).unwrap(),
            "- metadata:\n    annotations:\n      kept: so\n    name: a\n"
        );
    }
}
