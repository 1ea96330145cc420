//! Imports and overlays with the real qemu-img (Debian package qemu-utils).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: its helpers fail by panicking"
)]

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use muster_images::{
    BootLayer, DiskFormat, ImageError, Import, Imported, Progress, Repository, Stage, boot_layer,
    create_overlay, import,
};
use muster_types::image::ImageRef;
use sha2::{Digest, Sha256};

struct Bench {
    dir: tempfile::TempDir,
    repository: Repository,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let repository = Repository::open_or_create(&dir.path().join("repo")).unwrap();
        Self { dir, repository }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A disk of 8 MiB with some content, in a format.
    fn disk(&self, name: &str, format: &str) -> PathBuf {
        let raw = self.path("content.raw");
        let mut content = vec![0_u8; 8 << 20];
        for (i, byte) in content[1 << 20..3 << 20].iter_mut().enumerate() {
            *byte = u8::try_from(i * 7 % 251).unwrap();
        }
        fs::write(&raw, content).unwrap();
        let path = self.path(name);
        qemu_img(&[
            "convert",
            "-f",
            "raw",
            "-O",
            format,
            text(&raw),
            text(&path),
        ]);
        path
    }

    fn import(&self, source: &Path, name: &str) -> Result<Imported, ImageError> {
        import(&self.repository, &what(source, name), &mut |_| {
            ControlFlow::Continue(())
        })
    }

    fn image(&self, name: &str, revision: u32) -> ImageRef {
        ImageRef::Repository {
            repo: "r".into(),
            path: text(self.repository.root()).into(),
            name: name.into(),
            revision,
        }
    }

    /// Nothing in the making is left.
    fn assert_clean(&self) {
        let left: Vec<_> = fs::read_dir(self.repository.root().join(".tmp"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

fn what(source: &Path, name: &str) -> Import {
    Import {
        source: source.to_owned(),
        format: None,
        name: name.to_owned(),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn qemu_img(args: &[&str]) {
    let out = Command::new("qemu-img").args(args).output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn chain(error: &ImageError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(e) = source {
        text += &format!(": {e}");
        source = e.source();
    }
    text
}

#[test]
fn a_standalone_qcow2_is_copied_as_it_is() {
    let bench = Bench::new();
    let source = bench.disk("a.qcow2", "qcow2");
    let mut stages = Vec::new();
    let imported = import(
        &bench.repository,
        &what(&source, "a"),
        &mut |p: Progress| {
            stages.push(p.stage);
            assert!(p.done_bytes <= p.total_bytes);
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert!(stages.iter().all(|&s| s == Stage::Copy));
    let digest = Sha256::digest(fs::read(&source).unwrap());
    let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((imported.revision, &imported.digest), (0, &digest));
    assert_eq!(imported.virtual_size_bytes, 8 << 20);

    let layer = bench
        .repository
        .root()
        .join("data")
        .join(&digest[..2])
        .join(&digest);
    let kind = fs::metadata(&layer).unwrap();
    assert_eq!(kind.permissions().mode() & 0o777, 0o444);
    assert_eq!(kind.len(), imported.layer_bytes);
    let meta = fs::read_to_string(bench.repository.root().join("meta/a@0")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let keys: Vec<&str> = meta
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "custom_meta",
        "data_blobs",
        "kind",
        "name",
        "owner",
        "revision",
        "timestamp",
    ];
    assert_eq!(keys, expected);
    assert_eq!(meta["data_blobs"], serde_json::json!([digest]));
    assert_eq!(
        (&meta["kind"], &meta["custom_meta"]),
        (&"vm".into(), &serde_json::json!({}))
    );
    bench.assert_clean();
}

#[test]
fn other_formats_and_chains_are_converted_with_their_content() {
    let bench = Bench::new();
    let base = bench.disk("base.qcow2", "qcow2");
    let top = bench.path("top.qcow2");
    qemu_img(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "qcow2",
        "-b",
        text(&base),
        text(&top),
    ]);
    let content = bench.path("content.raw");
    let mut sources = vec![top];
    for format in ["raw", "vdi", "vmdk", "vpc", "qed"] {
        sources.push(bench.disk(&format!("a.{format}"), format));
    }
    for (i, source) in (0..).zip(&sources) {
        let imported = bench.import(source, "conv").unwrap();
        assert_eq!(imported.revision, i, "{}", source.display());
        let layer = boot_layer(&bench.image("conv", i)).unwrap();
        assert_eq!(layer.format, DiskFormat::Qcow2);
        qemu_img(&["check", "-q", text(&layer.path)]);
        // qemu-img compare is content with a longer second disk whose end is zero (vpc rounds up).
        qemu_img(&[
            "compare",
            "-q",
            "-f",
            "raw",
            "-F",
            "qcow2",
            text(&content),
            text(&layer.path),
        ]);
        let info = Command::new("qemu-img")
            .args(["info", text(&layer.path)])
            .output()
            .unwrap();
        assert!(!String::from_utf8_lossy(&info.stdout).contains("backing"));
    }
    bench.assert_clean();
}

#[test]
fn imports_at_once_get_revisions_of_their_own() {
    let bench = Bench::new();
    let source = bench.disk("a.qcow2", "qcow2");
    let mut revisions: Vec<u32> = std::thread::scope(|s| {
        let all: Vec<_> = (0..6)
            .map(|_| s.spawn(|| bench.import(&source, "busy").unwrap().revision))
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    });
    revisions.sort_unstable();
    assert_eq!(revisions, [0, 1, 2, 3, 4, 5]);
    let listing = bench.repository.list().unwrap();
    assert_eq!((listing.revisions.len(), listing.warnings.len()), (6, 0));
    bench.assert_clean();
}

#[test]
fn an_interrupted_import_leaves_nothing() {
    let bench = Bench::new();
    for (name, format) in [("a.qcow2", "qcow2"), ("a.raw", "raw")] {
        let source = bench.disk(name, format);
        let mut calls = 0;
        let result = import(&bench.repository, &what(&source, "x"), &mut |_| {
            calls += 1;
            if calls > 1 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(matches!(result, Err(ImageError::Interrupted)), "{result:?}");
        bench.assert_clean();
    }
    assert!(bench.repository.list().unwrap().revisions.is_empty());
    assert_eq!(
        fs::read_dir(bench.repository.root().join("data"))
            .unwrap()
            .count(),
        0
    );
}

#[test]
fn what_cannot_be_imported_is_refused_by_name() {
    let bench = Bench::new();
    let refused = |source: &Path, name: &str, part: &str| {
        let error = chain(&bench.import(source, name).unwrap_err());
        assert!(error.contains(part), "{error}");
        bench.assert_clean();
    };
    let disk = bench.disk("a.qcow2", "qcow2");
    refused(&bench.path("none"), "a", "No such file or directory");
    refused(bench.dir.path(), "a", "neither a file nor a block device");
    refused(&disk, "../a", "'../a'");
    let cut = bench.path("cut.qcow2");
    fs::write(&cut, &fs::read(&disk).unwrap()[..200_000]).unwrap();
    refused(&cut, "a", "damaged or was cut short");
    let mut wrong = what(&disk, "a");
    wrong.format = Some(DiskFormat::Vmdk);
    let error = import(
        &bench.repository,
        &wrong,
        &mut |_| ControlFlow::Continue(()),
    );
    assert!(chain(&error.unwrap_err()).contains("examine disk"));
}

#[test]
fn bad_meta_files_are_warnings_and_keep_their_revision() {
    let bench = Bench::new();
    let source = bench.disk("a.qcow2", "qcow2");
    bench.import(&source, "good").unwrap();
    let meta = bench.repository.root().join("meta");
    fs::write(meta.join("good@7"), "{\"name\": \"go").unwrap();
    fs::write(meta.join("good@1.swp"), "").unwrap();
    let listing = bench.repository.list().unwrap();
    assert_eq!(listing.revisions.len(), 1);
    assert_eq!(listing.warnings.len(), 2);
    assert!(listing.warnings[0].contains("good@1.swp: not a meta file"));
    assert!(
        listing.warnings[1].contains("good@7: does not parse"),
        "{:?}",
        listing.warnings
    );
    assert_eq!(bench.import(&source, "good").unwrap().revision, 8);
}

#[test]
fn overlays_of_any_name_show_the_layer_and_copy_nothing() {
    let bench = Bench::new();
    let odd = bench.path("json:odd, name=x:y\"z\u{e9} -");
    fs::create_dir(&odd).unwrap();
    let source = bench.disk("a.qcow2", "qcow2");
    let image = odd.join("disk,file=x:1.raw");
    qemu_img(&["convert", "-O", "raw", text(&source), text(&image)]);
    let layer = boot_layer(&ImageRef::File {
        path: text(&image).into(),
    })
    .unwrap();
    assert_eq!(
        (layer.format, layer.virtual_size_bytes),
        (DiskFormat::Raw, 8 << 20)
    );
    let dest = odd.join("over:lay,.qcow2");
    create_overlay(&layer, &dest).unwrap();
    let kind = fs::metadata(&dest).unwrap();
    assert_eq!(kind.permissions().mode() & 0o777, 0o600);
    assert!(kind.len() < 1 << 20);
    qemu_img(&[
        "compare",
        "-q",
        "-f",
        "qcow2",
        "-F",
        "raw",
        text(&dest),
        text(&image),
    ]);

    let again = chain(&create_overlay(&layer, &dest).unwrap_err());
    assert!(again.contains("File exists"), "{again}");
    let gone = BootLayer {
        path: bench.path("gone"),
        ..layer
    };
    let dest = bench.path("fresh");
    let error = chain(&create_overlay(&gone, &dest).unwrap_err());
    assert!(error.contains("No such file"), "{error}");
    assert!(!dest.exists());
}

#[test]
fn boot_checks_that_layers_are_there_and_whole() {
    let bench = Bench::new();
    let source = bench.disk("a.qcow2", "qcow2");
    let imported = bench.import(&source, "a").unwrap();
    let image = bench.image("a", 0);
    let layer = boot_layer(&image).unwrap();
    assert!(layer.path.ends_with(&imported.digest));
    let fails = |image: &ImageRef, part: &str| {
        let error = chain(&boot_layer(image).unwrap_err());
        assert!(error.contains(part), "{error}");
    };
    fails(&bench.image("a", 1), "no image a@1 in");
    fs::set_permissions(&layer.path, fs::Permissions::from_mode(0o644)).unwrap();
    let content = fs::read(&layer.path).unwrap();
    fs::write(&layer.path, &content[..content.len() / 100]).unwrap();
    fails(&image, "cut short");
    fs::write(&layer.path, "").unwrap();
    fails(&image, "0 bytes are no qcow2");
    fs::remove_file(&layer.path).unwrap();
    fails(&image, "it is missing");
    let meta = bench.repository.root().join("meta/a@0");
    let container = fs::read_to_string(&meta)
        .unwrap()
        .replace("\"vm\"", "\"ctr\"");
    fs::write(&meta, container).unwrap();
    fails(&image, "kind 'ctr'");
    fails(&ImageRef::File { path: "/".into() }, "it is a directory");
}
