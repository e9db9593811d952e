//! Builds the playground and serves it on a loopback port, or exports it for static hosting.
//!
//! Three steps: `tidegate-wasm-build` compiles the modules with the cargo that runs this program, [`page`] builds the page around them,
//! [`serve`] answers requests.

mod page;
mod serve;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use tidegate_wasm_build::{Module, build};

/// Where the playground is served when nothing else is asked for and the port is free.
const USUAL_PORT: u16 = 7433;

/// The tidegate playground: the scheduler in your browser, in virtual time, against mock providers.
#[derive(Debug, Parser)]
#[command(name = "tidegate-demo", version)]
struct Options {
    /// Serve on this port of 127.0.0.1; 0 picks a free one [default: 7433, or a free one if that is taken]
    #[arg(long, conflicts_with = "export")]
    port: Option<u16>,

    /// Do not open a browser
    #[arg(long)]
    no_open: bool,

    /// Write the page and its wasm into this folder for static hosting, and do not serve
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            for cause in error.chain().skip(1) {
                eprintln!("  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    // Before anything is compiled, which takes minutes.
    page::check_node()?;
    let home = home();
    let modules = [Module::Playground, Module::Files, Module::Machines].map(|module| build(&home, module));
    let modules = modules.into_iter().collect::<Result<Vec<_>>>()?;
    let app = home.join("app");
    if let Some(folder) = &options.export {
        page::build(&app, &modules, folder)?;
        println!("Wrote the page to {}", folder.display());
        return Ok(());
    }
    let built = home.join("dist");
    if built.exists() {
        // Else files of earlier builds would pile up.
        std::fs::remove_dir_all(&built).with_context(|| format!("could not remove {}", built.display()))?;
    }
    page::build(&app, &modules, &built)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start the event loop of the server")?;
    runtime.block_on(serve_until_interrupted(options, &built))
}

async fn serve_until_interrupted(options: &Options, built: &Path) -> Result<()> {
    let listener = match options.port {
        Some(port) => serve::listen(loopback(port)).await.with_context(|| match port {
            0 => "could not find a free port on 127.0.0.1".to_owned(),
            _ => format!("could not listen on port {port} (another --port, or none, may work)"),
        })?,
        None => match serve::listen(loopback(USUAL_PORT)).await {
            Ok(listener) => listener,
            Err(_) => serve::listen(loopback(0)).await.context("could not find a free port on 127.0.0.1")?,
        },
    };
    let address = listener.local_addr().context("the server's own address is unknown")?;
    let url = format!("http://{address}/");
    println!("The playground is at {url}");
    eprintln!("Press Ctrl-C to stop.");
    if !options.no_open {
        open_browser(&url);
    }
    tokio::select! {
        served = serve::run(listener, built) => served.context("the server stopped"),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// Opens the page where there is a desktop to open it on. Never fails: the address is printed anyway.
fn open_browser(url: &str) {
    let has_desktop = cfg!(not(target_os = "linux"))
        || ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"].iter().any(|name| std::env::var_os(name).is_some());
    if has_desktop && open::that_detached(url).is_err() {
        eprintln!("No browser could be opened; please open the address yourself.");
    }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// The folder of this package: as cargo says while it runs the program, else where it was compiled.
fn home() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from)
}
