//! Lets the plugin find Slurm's functions in the test program that stands for Slurm.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-tests=-rdynamic");
}
