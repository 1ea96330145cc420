//! The options of the running salloc, sbatch or srun that SPANK does not show: the partition and the
//! account of the job.
//!
//! Each command keeps them in a variable `opt` (`slurm_opt_t`, in its own `opt.c`), and
//! `slurm_option_get` reads one by its name, as Slurm's `cli_filter/lua` does. Both are the same from
//! 22.05 to 26.05; when `init_post_opt` runs, the command line, the environment and the `#SBATCH` lines
//! are in `opt`, and in a heterogeneous job it is the component at hand. They are looked up by name, so
//! that the plugin loads where they are missing: then nothing is known.

#![expect(
    unsafe_code,
    reason = "symbols of the running command are looked up and called"
)]

use std::ffi::{CStr, c_char, c_void};
use std::mem;

use nix::libc;

/// `extern char *slurm_option_get(slurm_opt_t *opt, const char *name)` (slurm_opt.h).
type OptionGet = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_char;

/// The value of an option by its long name; `None` if it was not given, or cannot be known.
#[must_use]
pub fn get(name: &CStr) -> Option<String> {
    let options = symbol(c"opt")?;
    // `opt` is a common word: it is the command's if it is in the object that has this function, which
    // salloc, sbatch and srun define beside it.
    if object(options)? != object(symbol(c"spank_set_job_env")?)? {
        return None;
    }
    let function = symbol(c"slurm_option_get")?;
    // SAFETY: the function of that name has this type in all supported releases.
    let function = unsafe { mem::transmute::<*mut c_void, OptionGet>(function) };
    // SAFETY: the command's own options, and a string. Hooks run on the command's only thread.
    let value = unsafe { function(options, name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // The copy that was made is not given back: a few bytes, once in a command that soon ends.
    // SAFETY: not null, so a string.
    let value = unsafe { CStr::from_ptr(value) };
    Some(value.to_string_lossy().into_owned()).filter(|v| !v.is_empty())
}

/// What the running program or one of its libraries calls by this name.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a string; nothing is loaded.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

/// The program or library that a symbol is in, by its base address.
fn object(symbol: *mut c_void) -> Option<*mut c_void> {
    let mut info = mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the second pointer is to a record of that type.
    let found = unsafe { libc::dladdr(symbol, info.as_mut_ptr()) };
    // SAFETY: four pointers, for each of which zero is a value.
    let info = unsafe { info.assume_init() };
    (found != 0).then_some(info.dli_fbase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_command_of_slurm_has_no_options() {
        assert_eq!(get(c"partition"), None);
        assert!(symbol(c"malloc").is_some() && symbol(c"no_such_symbol").is_none());
        let here = object(symbol(c"malloc").unwrap()).unwrap();
        assert_eq!(object(symbol(c"free").unwrap()), Some(here));
        assert_eq!(object(std::ptr::null_mut()), None);
    }
}
