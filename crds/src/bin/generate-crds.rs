//! Writes the custom resource definitions to `crds/generated/`, and to the Helm chart.

use std::path::Path;

use leasehold_crds::generated;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in generated::FOLDERS {
        let folder = root.join(folder);
        std::fs::create_dir_all(&folder)?;
        for (file, yaml) in generated::files().map_err(std::io::Error::other)? {
            std::fs::write(folder.join(file), yaml)?;
        }
    }
    Ok(())
}
