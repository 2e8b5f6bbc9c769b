//! Certificates, tokens and kubeconfig files.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    SanType,
};
use serde_json::{Value, json};

/// Users with a token: the name of the kubeconfig, the user, its groups.
const USERS: [(&str, &str, &str); 4] = [
    ("admin", "lab-admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
];

/// The name of the kubeconfig of a machine's kubelet.
pub(crate) fn kubelet_user(machine: &str) -> String {
    format!("kubelet-{machine}")
}

/// Writes a CA, the API server's certificates, the service accounts' key, the token file and a
/// kubeconfig for each user, and for the kubelet of each of these machines.
pub(super) fn write(folder: &Path, address: Ipv4Addr, machines: &[String]) -> Result<()> {
    authority(folder, address)?;
    let accounts_key = KeyPair::generate()?;
    fs::write(folder.join("service-account.key"), accounts_key.serialize_pem())?;
    fs::write(folder.join("service-account.pub"), accounts_key.public_key_pem())?;

    let mut tokens = String::new();
    let users = USERS.map(|(name, user, groups)| (name.to_owned(), user.to_owned(), groups));
    let kubelets = machines
        .iter()
        .map(|machine| (kubelet_user(machine), format!("system:node:{machine}"), "system:nodes"));
    for (name, user, groups) in users.into_iter().chain(kubelets) {
        // The key material is of this control plane alone, and so unguessable as a token.
        let token = &KeyPair::generate()?
            .serialize_der()
            .iter()
            .fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        writeln!(tokens, "{token},{user},{name},\"{groups}\"")?;
        kubeconfig(folder, &name, &format!("https://{address}:{}", super::PORT), token)?;
    }
    fs::write(folder.join("tokens.csv"), tokens)?;
    Ok(())
}

/// Writes a CA and the API server's certificates.
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
    for ip in [address, Ipv4Addr::LOCALHOST, super::SERVICE] {
        server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(ip)));
    }
    let issuer = Issuer::from_params(&authority, &authority_key);
    let certificate = server.signed_by(&server_key, &issuer)?;
    fs::write(folder.join("api-server.crt"), certificate.pem())?;
    fs::write(folder.join("api-server.key"), server_key.serialize_pem())?;

    // By it kubelets know the API server.
    let client_key = KeyPair::generate()?;
    let mut client = CertificateParams::default();
    client.distinguished_name.push(DnType::OrganizationName, "system:masters");
    client.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
    client.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    let certificate = client.signed_by(&client_key, &issuer)?;
    fs::write(folder.join("kubelet-client.crt"), certificate.pem())?;
    fs::write(folder.join("kubelet-client.key"), client_key.serialize_pem())?;
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
