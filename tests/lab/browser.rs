//! A real browser: headless Chromium, driven by its own driver over `WebDriver`.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fantoccini::key::Key;
use fantoccini::wd::Capabilities;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use crate::process::Process;
use crate::waiting;

/// The timeout of the driver's start, and of an expected content of a page.
const PATIENCE: Duration = Duration::from_secs(30);

/// The color scheme that the user prefers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Dark text on a light page.
    Light,
    /// The other way round.
    Dark,
}

/// A browser with one window. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    // The window goes with the process.
    client: Client,
    _driver: Process,
}

impl Browser {
    /// Starts a browser in the calling thread's network namespace. Its profile and log are in `folder`.
    pub async fn start(folder: &Path, colours: Colours) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("chromedriver");
        command.arg(format!("--port={port}"));
        let driver =
            Process::spawn("chromedriver", &folder.join("chromedriver.log"), &mut command)?;
        let url = format!("http://127.0.0.1:{port}");
        let scheme = match colours {
            Colours::Light => 1,
            Colours::Dark => 0,
        };
        let profile = tempfile::tempdir_in(folder)?.keep();
        let options = json!({
            "args": [
                "--headless",
                // Root, in a namespace that ends with the test.
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                format!("--user-data-dir={}", profile.display()),
                format!("--blink-settings=preferredColorScheme={scheme}"),
            ],
        });
        let mut capabilities = Capabilities::new();
        capabilities.insert("goog:chromeOptions".to_owned(), options);
        capabilities.insert("goog:loggingPrefs".to_owned(), json!({ "browser": "ALL" }));
        let mut client = None;
        let connect = async || {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            client = builder.capabilities(capabilities.clone()).connect(&url).await.ok();
            Ok(client.is_some())
        };
        let output = async || driver.output();
        waiting::eventually("the browser has started", PATIENCE, connect, output).await?;
        Ok(Self { client: client.context("no browser")?, _driver: driver })
    }

    /// Loads a page.
    pub async fn open(&self, url: &str) -> Result<()> {
        Ok(self.client.goto(url).await?)
    }

    /// Makes the window so large.
    pub async fn resize(&self, width: u32, height: u32) -> Result<()> {
        Ok(self.client.set_window_size(width, height).await?)
    }

    /// The value of an expression on the page.
    pub async fn value(&self, expression: &str) -> Result<Value> {
        Ok(self.client.execute(&format!("return {expression};"), Vec::new()).await?)
    }

    /// The text that a person sees of what a CSS selector finds; empty where it finds nothing.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let found = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
        Ok(self.value(&found).await?.as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the text of what a selector finds has all these parts.
    pub async fn shows(&self, selector: &str, parts: &[&str]) -> Result<()> {
        let what = format!("{selector} shows {parts:?}");
        let condition = async || {
            let text = self.text(selector).await?;
            Ok(parts.iter().all(|part| text.contains(part)))
        };
        let dump = async || self.text("body").await.unwrap_or_default();
        waiting::eventually(&what, PATIENCE, condition, dump).await
    }

    /// Presses the tabulator key.
    pub async fn tab(&self) -> Result<()> {
        let focused = self.client.active_element().await?;
        Ok(focused.send_keys(&String::from(char::from(Key::Tab))).await?)
    }

    /// Writes a screenshot of the page into a file.
    pub async fn screenshot(&self, file: &Path) -> Result<()> {
        let png = self.client.screenshot().await?;
        ensure!(png.len() > 1000, "an empty screenshot");
        Ok(std::fs::write(file, png)?)
    }

    /// Ends it.
    pub async fn close(self) -> Result<()> {
        Ok(self.client.close().await?)
    }
}
