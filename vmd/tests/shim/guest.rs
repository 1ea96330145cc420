//! A guest of 512 bytes: greets on the first serial port, echoes what it is sent, and powers off at `q`.

use std::path::{Path, PathBuf};

/// What it says.
pub(crate) const GREETING: &str = "muster ready\r\n";

/// Real-mode code for 0000:7c00.
const CODE: &[u8] = &[
    0x31, 0xc0, //             xor ax, ax
    0x8e, 0xd8, //             mov ds, ax
    0xbe, 0x35, 0x7c, //       mov si, greeting
    0xac, //             next: lodsb
    0x84, 0xc0, //             test al, al
    0x74, 0x05, //             jz wait
    0xe8, 0x17, 0x00, //       call put
    0xeb, 0xf6, //             jmp next
    0xba, 0xfd, 0x03, // wait: mov dx, 0x3fd (line status)
    0xec, //             poll: in al, dx
    0xa8, 0x01, //             test al, 1
    0x74, 0xfb, //             jz poll
    0xba, 0xf8, 0x03, //       mov dx, 0x3f8
    0xec, //                   in al, dx
    0x3c, b'q', //             cmp al, 'q'
    0x74, 0x0a, //             je off
    0xe8, 0x02, 0x00, //       call put
    0xeb, 0xeb, //             jmp wait
    0xba, 0xf8, 0x03, //  put: mov dx, 0x3f8
    0xee, //                   out dx, al
    0xc3, //                   ret
    0xba, 0x04, 0x06, //  off: mov dx, 0x604 (ACPI PM1a control)
    0xb8, 0x00, 0x20, //       mov ax, 0x2000 (SLP_EN, soft off)
    0xef, //                   out dx, ax
    0xf4, //            sleep: hlt
    0xeb, 0xfd, //             jmp sleep
];

/// Writes the guest's disk, raw.
pub(crate) fn disk(dir: &Path) -> PathBuf {
    let mut image = vec![0_u8; 1024 * 1024];
    image[..CODE.len()].copy_from_slice(CODE);
    let text = GREETING.as_bytes();
    image[CODE.len()..CODE.len() + text.len()].copy_from_slice(text);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    let path = dir.join("guest.img");
    std::fs::write(&path, image).unwrap();
    path
}
