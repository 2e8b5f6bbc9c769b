//! A shell as people have it who follow a page: kubectl, Helm and our own programs are found by their names, and
//! the folder has what a clone of the repository has.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::helm::Helm;
use crate::{Lab, binaries, repository, shell};

/// The folders of the repository that commands name.
const FOLDERS: [&str; 3] = ["crds", "deploy", "examples"];

/// The shell of an admin.
#[derive(Debug)]
pub struct Terminal {
    helm: Helm,
    kubeconfig: PathBuf,
    /// Where it is, with `bin` for programs.
    folder: PathBuf,
}

impl Terminal {
    /// That of this lab's admin.
    pub fn of(lab: &Lab) -> Result<Self> {
        let (folder, helm) = (lab.folder().join("terminal"), Helm::of(lab)?);
        let programs = folder.join("bin");
        fs::create_dir_all(&programs)?;
        for (program, name) in [
            (lab.plane().program("kubectl"), "kubectl"),
            (helm.program().to_owned(), "helm"),
            (binaries::operator()?, "leasehold-operator"),
            (binaries::plugin()?, "kubectl-leasehold"),
        ] {
            let program =
                fs::canonicalize(&program).with_context(|| program.display().to_string())?;
            symlink(program, programs.join(name))?;
        }
        for name in FOLDERS {
            symlink(fs::canonicalize(repository().join(name))?, folder.join(name))?;
        }
        Ok(Self { helm, kubeconfig: fs::canonicalize(lab.plane().kubeconfig("admin"))?, folder })
    }

    /// Runs a line and returns what it prints; its failure carries what it says.
    pub fn run(&self, line: &str) -> Result<String> {
        let mut path = OsString::from(fs::canonicalize(self.folder.join("bin"))?);
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new("sh");
        command.args(["-euc", line]).current_dir(&self.folder);
        command.env("PATH", path).env("KUBECONFIG", &self.kubeconfig);
        command.env("KUBECACHEDIR", fs::canonicalize(&self.folder)?.join("kubectl-cache"));
        self.helm.apart(&mut command);
        shell::output(&mut command)
    }
}
