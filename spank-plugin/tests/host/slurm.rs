//! A program that provides SPANK's functions, loads the plugin and calls one hook; everything the
//! plugin says goes to the standard output.

#![expect(unsafe_code, reason = "it stands for a C program")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::hint::black_box;
use std::ptr;

use slurm_spank_sys as sys;

/// Variables that say what the program is to be and do.
pub(crate) const HOOK: &str = "FAKE_SLURM_HOOK";
pub(crate) const PLUGIN: &str = "FAKE_SLURM_PLUGIN";
pub(crate) const CONTEXT: &str = "FAKE_SLURM_CONTEXT";
pub(crate) const OPTION: &str = "FAKE_SLURM_OPTION";

/// The variable with an option's argument.
pub(crate) fn option_variable(name: &str) -> String {
    match name {
        "vm" => OPTION.to_owned(),
        other => format!("{OPTION}_{other}"),
    }
}

/// The functions that the plugin may need.
pub(crate) const PROVIDED: [&str; 9] = [
    "slurm_error",
    "slurm_spank_log",
    "spank_context",
    "spank_get_item",
    "spank_getenv",
    "spank_job_control_setenv",
    "spank_option_getopt",
    "spank_option_register",
    "spank_strerror",
];

type HookFn = unsafe extern "C" fn(sys::spank_t, c_int, *mut *mut c_char) -> c_int;

/// Loads the plugin, calls `init`, hands the option over as Slurm does, calls the hook, prints
/// which variables of an outer job are left, and the hook's result.
pub(crate) fn call() {
    keep();
    let hook = std::env::var(HOOK).unwrap();
    let path = CString::new(std::env::var(PLUGIN).unwrap()).unwrap();
    // SAFETY: a string; the plugin has no constructors.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: takes nothing.
        let why = unsafe { libc::dlerror() };
        panic!("dlopen: {}", text(why));
    }
    if spank_context() != sys::S_CTX_JOB_SCRIPT {
        assert_eq!(run(library, "slurm_spank_init"), 0);
    }
    let result = run(library, &hook);
    let mut left: Vec<String> = std::env::vars()
        .map(|(name, _)| name)
        .filter(|name| name.contains("SLURM_SPANK_"))
        .collect();
    left.sort();
    for name in left {
        println!("left {name}");
    }
    println!("result {result}");
}

fn run(library: *mut c_void, hook: &str) -> c_int {
    let name = CString::new(hook).unwrap();
    // SAFETY: a library and a string.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!symbol.is_null(), "no {hook}");
    // SAFETY: hooks have this type (spank.h).
    let function = unsafe { std::mem::transmute::<*mut c_void, HookFn>(symbol) };
    let arguments: Vec<CString> = std::env::args()
        .skip(1)
        .map(|a| CString::new(a).unwrap())
        .collect();
    let mut pointers: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).unwrap();
    // SAFETY: so many strings; the plugin passes the handle back only.
    unsafe { function(ptr::null_mut(), count, pointers.as_mut_ptr()) }
}

/// Keeps the linker from leaving out what only the plugin calls.
fn keep() {
    black_box([
        slurm_error as *const (),
        slurm_spank_log as *const (),
        spank_context as *const (),
        spank_get_item as *const (),
        spank_getenv as *const (),
        spank_job_control_setenv as *const (),
        spank_option_getopt as *const (),
        spank_option_register as *const (),
        spank_strerror as *const (),
    ]);
}

fn text(s: *const c_char) -> String {
    // SAFETY: the plugin passes strings.
    let s = unsafe { CStr::from_ptr(s) };
    s.to_str().unwrap().to_owned()
}

// The C functions take variable arguments. These have the arguments that the plugin passes: on the
// supported machines pointers are passed in the same way in both.

// SAFETY: the name of Slurm's function, which nothing else in this program has.
#[unsafe(no_mangle)]
extern "C" fn slurm_error(format: *const c_char, line: *const c_char) {
    assert_eq!(text(format), "%s");
    println!("error {}", text(line));
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn slurm_spank_log(format: *const c_char, line: *const c_char) {
    assert_eq!(text(format), "%s");
    println!("note {}", text(line));
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_context() -> c_uint {
    std::env::var(CONTEXT).unwrap().parse().unwrap()
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_get_item(_: sys::spank_t, item: c_uint, value: *mut u32) -> c_uint {
    let answer = match item {
        sys::S_JOB_ID => 7,
        sys::S_TASK_ID | sys::S_TASK_GLOBAL_ID => 0,
        _ => return 3001,
    };
    // SAFETY: all three items take a pointer to a number of 32 bits.
    unsafe { value.write(answer) };
    sys::ESPANK_SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_getenv(
    _: sys::spank_t,
    name: *const c_char,
    buffer: *mut c_char,
    size: c_int,
) -> c_uint {
    let Ok(value) = std::env::var(text(name)) else {
        return 3004;
    };
    let value = CString::new(value).unwrap();
    let bytes = value.as_bytes_with_nul();
    assert!(bytes.len() <= usize::try_from(size).unwrap());
    // SAFETY: it fits.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, bytes.len()) };
    sys::ESPANK_SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_job_control_setenv(
    _: sys::spank_t,
    name: *const c_char,
    value: *const c_char,
    _: c_int,
) -> c_uint {
    println!("setenv {}={}", text(name), text(value));
    sys::ESPANK_SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_option_getopt(
    _: sys::spank_t,
    record: *const sys::spank_option,
    argument: *mut *mut c_char,
) -> c_uint {
    // SAFETY: the plugin's record.
    let record = unsafe { &*record };
    match std::env::var(option_variable(&text(record.name))) {
        Ok(value) => {
            // SAFETY: the plugin's variable; the string is never freed.
            unsafe { argument.write(CString::new(value).unwrap().into_raw()) };
            sys::ESPANK_SUCCESS
        }
        Err(_) => 3000,
    }
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_option_register(_: sys::spank_t, record: *const sys::spank_option) -> c_uint {
    // SAFETY: the plugin's record.
    let record = unsafe { &*record };
    assert!(text(record.usage).len() > 20 && !text(record.arginfo).is_empty());
    if let Ok(value) = std::env::var(option_variable(&text(record.name))) {
        let value = CString::new(value).unwrap();
        let remote = c_int::from(spank_context() == sys::S_CTX_REMOTE);
        let callback = record.cb.unwrap();
        // SAFETY: a string that outlives the call, as from Slurm.
        assert_eq!(unsafe { callback(record.val, value.as_ptr(), remote) }, 0);
    }
    sys::ESPANK_SUCCESS
}

// SAFETY: as above.
#[unsafe(no_mangle)]
extern "C" fn spank_strerror(_: c_uint) -> *const c_char {
    c"a SPANK error".as_ptr()
}
