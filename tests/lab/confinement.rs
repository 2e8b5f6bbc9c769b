//! `seccompProfile: RuntimeDefault`: of the system calls, only those that a container runtime
//! leaves to a process by default.
//!
//! The profile is that of Podman and CRI-O (containers/common, in Debian `golang-github-containers-common`);
//! Docker's and containerd's are of the same descent. Its format is Docker's: rules by names, each for some
//! architectures, with or without some capabilities, with conditions on arguments.
//! As a container of the manifests, a process here has at most the capabilities `CAP_NET_ADMIN` and
//! `CAP_NET_RAW`, which no rule is about.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use serde::Deserialize;
use syscalls::Sysno;

/// The argument by which a binary of the lab becomes a confined process: the program and its arguments
/// follow.
pub const ARGUMENT: &str = "confined";

/// Where the package puts the profile. Without it nothing is confined: the demo runs without the package,
/// and a test looks whether the filter is there.
const PROFILE: &str = "/usr/share/containers/seccomp.json";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_errno_ret: u32,
    syscalls: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
struct Rule {
    names: Vec<String>,
    action: String,
    args: Option<Vec<Condition>>,
    #[serde(default)]
    includes: Scope,
    #[serde(default)]
    excludes: Scope,
}

/// For which processes a rule is, or is not.
#[derive(Debug, Default, Deserialize)]
struct Scope {
    #[serde(default)]
    arches: Vec<String>,
    #[serde(default)]
    caps: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

impl Condition {
    fn read(&self) -> Result<SeccompCondition> {
        let (op, value) = match self.op.as_str() {
            "SCMP_CMP_EQ" => (SeccompCmpOp::Eq, self.value),
            "SCMP_CMP_NE" => (SeccompCmpOp::Ne, self.value),
            "SCMP_CMP_MASKED_EQ" => (SeccompCmpOp::MaskedEq(self.value), self.value_two),
            other => bail!("unknown condition {other}"),
        };
        Ok(SeccompCondition::new(self.index, SeccompCmpArgLen::Qword, op, value)?)
    }
}

impl Rule {
    /// Whether it allows anything on this machine to a process without further capabilities.
    fn allows(&self) -> bool {
        let arch = if ARCH == "aarch64" { "arm64" } else { "amd64" };
        let arches = &self.includes.arches;
        self.action == "SCMP_ACT_ALLOW"
            && self.includes.caps.is_empty()
            && (arches.is_empty() || arches.iter().any(|one| one == arch))
            && !self.excludes.arches.iter().any(|one| one == arch)
    }
}

fn filter(path: &Path) -> Result<BpfProgram> {
    let profile: Profile = serde_json::from_slice(&fs::read(path)?)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut unconditional = BTreeSet::new();
    for rule in profile.syscalls.iter().filter(|rule| rule.allows()) {
        let conditions = rule.args.iter().flatten().map(Condition::read);
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        // Names of other architectures are no system calls here.
        for call in rule.names.iter().filter_map(|name| name.parse::<Sysno>().ok()) {
            let number = i64::from(call.id());
            let allowed = rules.entry(number).or_default();
            if conditions.is_empty() {
                unconditional.insert(number);
            } else {
                allowed.push(SeccompRule::new(conditions.clone())?);
            }
        }
    }
    // One of several rules is enough, and none at all stands for any arguments.
    for number in unconditional {
        rules.insert(number, Vec::new());
    }
    let otherwise = SeccompAction::Errno(profile.default_errno_ret);
    let arch = TargetArch::try_from(ARCH)?;
    Ok(SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?.try_into()?)
}

/// Becomes the program that the arguments name, with the profile's system calls and no others.
///
/// # Errors
/// If it cannot; it returns in no other case.
pub fn execute(mut arguments: impl Iterator<Item = OsString>) -> Result<()> {
    let program = arguments.next().context("confined: a program is to follow")?;
    let path = Path::new(PROFILE);
    if path.exists() {
        let filter = filter(path).with_context(|| format!("read {PROFILE}"))?;
        seccompiler::apply_filter(&filter).context("install the seccomp filter")?;
    }
    Err(Command::new(&program).args(arguments).exec())
        .with_context(|| format!("execute {}", program.display()))
}
