//! The check of which module of a crate imports which, from its source text.
//!
//! ```text
//! src/**/*.rs ──► source (modules) ──► paths (use trees, inline paths) ──► graph (arrows, circles)
//!                                                                            │
//!                                     the crate's table of rooms ──► rooms ──┴─► what is wrong
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`source`] | the files of a crate as modules |
//! | [`tokens`] | the tokens of a file that matter here |
//! | [`paths`] | the paths that a file names |
//! | [`graph`] | the arrows between modules, and their circles |
//! | [`rooms`] | the table of allowed arrows |
//!
//! A module is a file; inline modules belong to their file, and items under `#[cfg(test)]` do not count.
//! A name that a module only re-exports counts as an import of the module that defines it, and a module
//! that re-exports items of its own children does not import them: it is a facade. Methods leave no trace
//! in imports: keep an `impl` in the room of its type.

pub mod graph;
pub mod paths;
pub mod rooms;
pub mod source;
pub mod tokens;

pub use graph::Graph;
pub use rooms::{Rooms, violations};
pub use source::{Source, read};

use std::io;
use std::path::Path;

/// The faults of the sources under `root` by `table`, where up to `largest` files may import each other.
/// `planted`: a module, and text that is added to it, for the test of the table itself.
///
/// # Errors
///
/// If the sources cannot be read, or the module is none of them.
pub fn faults(
    root: &Path,
    table: &str,
    largest: usize,
    planted: Option<(&str, &str)>,
) -> io::Result<Vec<String>> {
    let mut sources = read(root)?;
    if let Some((module, text)) = planted {
        let mut files = sources.iter_mut();
        let file = files.find(|source| source.module == module);
        file.ok_or_else(|| io::Error::other(format!("no module {module}")))?.text.push_str(text);
    }
    Ok(violations(&Graph::of(&sources), &Rooms::parse(table), largest))
}
