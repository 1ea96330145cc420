//! Makes the bindings from the headers of the Slurm release that the plugin is to be loaded by.
//!
//! `SLURM_INCLUDE_DIR` is the directory that holds `slurm/spank.h`; unset, the system's. Where the
//! headers or libclang are missing, the committed bindings are used, with a warning: SPANK's
//! interface is the same from 22.05 on, only the version number differs, and that needs no libclang.

use std::env;
use std::error::Error;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

/// Where a distribution or a site's own build puts Slurm's headers.
const SYSTEM_DIRS: [&str; 3] = ["/usr/include", "/usr/local/include", "/opt/slurm/include"];

/// What the committed bindings say, the release they were made from.
const FALLBACK: &str = "src/bindings_fallback.rs";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={FALLBACK}");
    for variable in ["SLURM_INCLUDE_DIR", "LIBCLANG_PATH"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let text = match include_dir()? {
        Some(dir) => from_headers(&dir)?,
        None => {
            println!(
                "cargo:warning=slurm/spank.h is not in {}: the plugin is built for Slurm 22.05 only; \
                 set SLURM_INCLUDE_DIR",
                SYSTEM_DIRS.join(", ")
            );
            fs::read_to_string(FALLBACK)?
        }
    };
    fs::write(out.join("bindings.rs"), text)?;
    Ok(())
}

/// The directory that holds `slurm/spank.h`. A directory that was asked for must hold it.
fn include_dir() -> Result<Option<PathBuf>, String> {
    let header = |dir: &Path| dir.join("slurm/spank.h").is_file();
    match env::var_os("SLURM_INCLUDE_DIR").filter(|d| !d.is_empty()) {
        Some(dir) => {
            let dir = PathBuf::from(dir);
            if header(&dir) {
                Ok(Some(dir))
            } else {
                Err(format!(
                    "SLURM_INCLUDE_DIR={}: no slurm/spank.h in it",
                    dir.display()
                ))
            }
        }
        None => Ok(SYSTEM_DIRS
            .iter()
            .map(PathBuf::from)
            .find(|dir| header(dir))),
    }
}

fn from_headers(dir: &Path) -> Result<String, Box<dyn Error>> {
    for name in ["spank.h", "slurm_errno.h", "slurm_version.h"] {
        println!(
            "cargo:rerun-if-changed={}",
            dir.join("slurm").join(name).display()
        );
    }
    match generate(dir) {
        Ok(text) => Ok(text),
        Err(why) => {
            println!(
                "cargo:warning=bindings are not generated from {}: {why}; the committed ones are \
                 used with the headers' version",
                dir.display()
            );
            let version = header_version(&dir.join("slurm/slurm_version.h"))?;
            Ok(with_version(&fs::read_to_string(FALLBACK)?, version))
        }
    }
}

/// Runs bindgen; it panics where libclang cannot be loaded.
fn generate(dir: &Path) -> Result<String, String> {
    let header = dir.join("slurm/spank.h").display().to_string();
    let include = format!("-I{}", dir.display());
    // The panic becomes a warning; its message shall not be printed as a crash as well.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let made = panic::catch_unwind(|| {
        bindgen::Builder::default()
            // spank.h uses uint32_t and uid_t without including what declares them.
            .header_contents(
                "wrapper.h",
                &format!("#include <stdint.h>\n#include <sys/types.h>\n#include \"{header}\"\n"),
            )
            .clang_arg(include)
            .allowlist_function("spank_.*|slurm_(error|info|verbose|debug|debug2|debug3|spank_log)")
            // Not in 22.05: a call of it would keep the plugin from being loaded there.
            .blocklist_function("spank_prepend_task_argv")
            .allowlist_type("spank_.*")
            .allowlist_var("SLURM_VERSION_NUMBER|SPANK_OPTION_MAXLEN|ESPANK_SUCCESS")
            .blocklist_var("spank_options")
            // An enumeration of all of Slurm's errors, of which the interface needs success alone.
            .blocklist_type("slurm_err_t")
            .raw_line("pub type slurm_err_t = ::std::os::raw::c_uint;")
            .merge_extern_blocks(true)
            .prepend_enum_name(false)
            .generate_comments(false)
            .layout_tests(false)
            .derive_debug(true)
            .generate()
            .map(|bindings| bindings.to_string())
            .map_err(|e| e.to_string())
    });
    panic::set_hook(hook);
    match made {
        Ok(result) => result,
        Err(_) => Err("libclang cannot be loaded (Debian: libclang-dev)".into()),
    }
}

/// `SLURM_VERSION_NUMBER` of a header, read as text.
fn header_version(path: &Path) -> Result<u32, String> {
    let bad = |why: &str| format!("SLURM_VERSION_NUMBER in {}: {why}", path.display());
    let text = fs::read_to_string(path).map_err(|e| bad(&e.to_string()))?;
    let value = text
        .lines()
        .find_map(|l| l.strip_prefix("#define SLURM_VERSION_NUMBER "))
        .ok_or_else(|| bad("not found"))?
        .trim();
    let digits = value
        .strip_prefix("0x")
        .ok_or_else(|| bad("no hexadecimal number"))?;
    u32::from_str_radix(digits, 16).map_err(|e| bad(&e.to_string()))
}

/// The committed bindings with another version number.
fn with_version(bindings: &str, version: u32) -> String {
    bindings
        .lines()
        .map(|line| {
            if line.starts_with("pub const SLURM_VERSION_NUMBER") {
                format!("pub const SLURM_VERSION_NUMBER: u32 = {version};\n")
            } else {
                format!("{line}\n")
            }
        })
        .collect()
}
