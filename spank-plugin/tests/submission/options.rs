//! The options of a command of Slurm's, as the plugin finds them in salloc, sbatch and srun.

#![expect(unsafe_code, reason = "it stands for a C program")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr;

/// Variables with what the options were given.
pub(crate) const PARTITION: &str = "FAKE_SLURM_PARTITION";
pub(crate) const ACCOUNT: &str = "FAKE_SLURM_ACCOUNT";

// SAFETY: the name of the commands' variable, which nothing else in this program has.
#[unsafe(no_mangle)]
static opt: [u8; 64] = [0; 64];

/// Keeps the linker from leaving out what only the plugin looks up.
pub(crate) fn keep() {
    black_box((
        &raw const opt,
        slurm_option_get as *const (),
        spank_set_job_env as *const (),
    ));
}

// SAFETY: the name of Slurm's function, which nothing else in this program has.
#[unsafe(no_mangle)]
extern "C" fn slurm_option_get(options: *mut c_void, name: *const c_char) -> *mut c_char {
    assert_eq!(options.cast_const(), (&raw const opt).cast());
    // SAFETY: the plugin passes a string.
    let name = unsafe { CStr::from_ptr(name) };
    let variable = match name.to_str().unwrap() {
        "partition" => PARTITION,
        "account" => ACCOUNT,
        other => panic!("no option '{other}'"),
    };
    match std::env::var(variable) {
        // Slurm's caller would free it.
        Ok(value) => CString::new(value).unwrap().into_raw(),
        Err(_) => ptr::null_mut(),
    }
}

// SAFETY: as above. The plugin asks only where it is.
#[unsafe(no_mangle)]
extern "C" fn spank_set_job_env(_: *const c_char, _: *const c_char, _: c_int) -> c_int {
    0
}
