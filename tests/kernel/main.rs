//! The kernel edge and the announcement against a real kernel, in network namespaces of their own.
//!
//! The binary enters a sandbox first: private network, mount and process namespaces. Whatever
//! happens to it, the kernel cleans up, and nothing outside is touched. Needs root.

mod addresses;
mod detour;
mod edge;
mod flood;
mod forward;
mod guard;
mod hosts;
mod listening;
mod lock;
mod marks;
mod moves;
mod order;
#[path = "../lab/client/ping.rs"]
mod ping;
mod pods;
mod proxy;
mod return_path;
mod segment;
mod spread;
mod spread_tables;
mod spreaders;
mod world;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::Result;
use leasehold::net::rtnl::mark::Mark;
use libtest_mimic::{Arguments, Failed, Trial};

use crate::world::World;

/// Set inside the sandbox.
const SANDBOX: &str = "LEASEHOLD_KERNEL_TEST_SANDBOX";

/// How many tests run at once unless `--test-threads` says otherwise: most of the time they wait.
const THREADS: usize = 3;

fn main() -> Result<ExitCode> {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    if !arguments.list && std::env::var_os(SANDBOX).is_none() {
        eprintln!("{}", enter_sandbox());
        return Ok(ExitCode::FAILURE);
    }
    if !arguments.list {
        world::run("mkdir", &["-p", "/run/netns"])?;
        world::run("mount", &["-t", "tmpfs", "tmpfs", "/run/netns"])?;
        // For what speakers keep.
        world::run("mount", &["-t", "tmpfs", "tmpfs", "/mnt"])?;
        world::run("ip", &["link", "set", "lo", "up"])?;
    }
    let rooms = [
        addresses::TESTS,
        order::TESTS,
        marks::TESTS,
        edge::TESTS,
        guard::TESTS,
        detour::TESTS,
        forward::TESTS,
        spread::TESTS,
        spread_tables::TESTS,
        segment::TESTS,
        listening::TESTS,
        flood::TESTS,
        lock::TESTS,
        proxy::TESTS,
        return_path::TESTS,
    ];
    let tests = rooms.concat().into_iter().map(|(name, test)| (name.to_owned(), test, None));
    // Once more as on a kernel that has no IFA_PROTO.
    let old = [addresses::OF_MARKED, order::TESTS].concat().into_iter();
    let old = old.map(|(name, test)| (format!("by_metric_{name}"), test, Some(Mark::Metric)));
    let trials = tests.chain(old).enumerate().map(|(number, (name, test, mark))| {
        Trial::test(name, move || {
            let world = World::new(&format!("t{number}"), mark)?;
            test(&world).map_err(|error| Failed::from(format!("{error:#}")))
        })
    });
    Ok(libtest_mimic::run(&arguments, trials.collect()).exit_code())
}

/// Starts this binary anew in the sandbox; comes back only with an error.
fn enter_sandbox() -> String {
    if !rustix::process::geteuid().is_root() {
        return "the kernel tests need root: they make network namespaces".to_owned();
    }
    let binary = match std::env::current_exe() {
        Ok(binary) => binary,
        Err(error) => return format!("cannot find this binary: {error}"),
    };
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(binary)
        .args(std::env::args_os().skip(1))
        .env(SANDBOX, "1")
        .exec();
    format!("cannot enter the sandbox by unshare (util-linux): {error}")
}
