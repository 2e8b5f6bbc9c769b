//! Writes the custom resource definitions to `crds/generated/`.

use std::path::Path;

use leasehold_crds::generated;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    std::fs::create_dir_all(&folder)?;
    for (file, yaml) in generated::files().map_err(std::io::Error::other)? {
        std::fs::write(folder.join(file), yaml)?;
    }
    Ok(())
}
