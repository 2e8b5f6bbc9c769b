//! Certificates, tokens and kubeconfig files.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};

/// Users with a token: the name of the kubeconfig, the user, its groups.
const USERS: [(&str, &str, &str); 3] = [
    ("admin", "lab-admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-proxy", "system:kube-proxy", ""),
];

/// Writes a CA, the API server's certificate, the service accounts' key, the token file and a
/// kubeconfig for each user.
pub(super) fn write(folder: &Path, address: Ipv4Addr) -> Result<()> {
    authority(folder, address)?;
    let accounts_key = KeyPair::generate()?;
    fs::write(folder.join("service-account.key"), accounts_key.serialize_pem())?;
    fs::write(folder.join("service-account.pub"), accounts_key.public_key_pem())?;

    let mut tokens = String::new();
    for (name, user, groups) in USERS {
        // The key material is of this control plane alone, and so unguessable as a token.
        let token = &KeyPair::generate()?
            .serialize_der()
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        writeln!(tokens, "{token},{user},{name},\"{groups}\"")?;
        kubeconfig(folder, name, &format!("https://{address}:{}", super::PORT), token)?;
    }
    fs::write(folder.join("tokens.csv"), tokens)?;
    Ok(())
}

/// Writes a CA and the API server's certificate.
fn authority(folder: &Path, address: Ipv4Addr) -> Result<()> {
    let authority_key = KeyPair::generate()?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "lab");
    fs::write(folder.join("ca.crt"), authority.self_signed(&authority_key)?.pem())?;

    let server_key = KeyPair::generate()?;
    let mut server =
        CertificateParams::new(["localhost", "kubernetes.default.svc"].map(String::from))?;
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    for ip in [address, Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 96, 0, 1)] {
        server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(ip)));
    }
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = server.signed_by(&server_key, &issuer)?;
    fs::write(folder.join("api-server.crt"), certificate.pem())?;
    fs::write(folder.join("api-server.key"), server_key.serialize_pem())?;
    Ok(())
}

/// Another CA and another certificate of the API server, and kubeconfigs that know it.
pub(super) fn rotate(folder: &Path, address: Ipv4Addr) -> Result<()> {
    authority(folder, address)?;
    let data = base64(&fs::read(folder.join("ca.crt"))?);
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "kubeconfig") {
            let mut config: Value = serde_yaml_ng::from_str(&fs::read_to_string(&path)?)?;
            let known = config.pointer_mut("/clusters/0/cluster/certificate-authority-data");
            *known.context("a kubeconfig without its authority")? = json!(data);
            fs::write(&path, serde_yaml_ng::to_string(&config)?)?;
        }
    }
    Ok(())
}

/// Writes `<name>.kubeconfig`.
pub(super) fn kubeconfig(folder: &Path, name: &str, url: &str, token: &str) -> Result<PathBuf> {
    let path = folder.join(format!("{name}.kubeconfig"));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{
            "name": "lab",
            "cluster": {
                "server": url,
                "certificate-authority-data": base64(&fs::read(folder.join("ca.crt"))?),
            },
        }],
        "users": [{ "name": name, "user": { "token": token } }],
        "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": name } }],
    });
    fs::write(&path, serde_yaml_ng::to_string(&config)?)?;
    Ok(path)
}

fn base64(bytes: &[u8]) -> String {
    // The API's byte strings are base64 in JSON (RFC 4648 section 4).
    match serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}
