//! The value of an option: `first,key=value,key=value`, commas inside a value doubled.

/// A value under construction.
#[derive(Debug)]
pub(super) struct Value(String);

impl Value {
    /// Starts with the part that has no key, such as a device's driver.
    pub(super) fn of(first: &str) -> Self {
        Self(escaped(first))
    }

    /// Starts with a key.
    pub(super) fn key(key: &str, value: impl ToString) -> Self {
        Self(format!("{key}={}", escaped(&value.to_string())))
    }

    /// Adds a key.
    pub(super) fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.0.push(',');
        self.0.push_str(key);
        self.0.push('=');
        self.0.push_str(&escaped(&value.to_string()));
        self
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// QEMU ends a value at a comma and takes two for one (qemu-options documentation, "-drive file=").
fn escaped(text: &str) -> String {
    text.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_doubled_in_every_place() {
        let value = Value::of("a,b").with("path", "/x,,y").with("n", 3);
        assert_eq!(value.into_string(), "a,,b,path=/x,,,,y,n=3");
        assert_eq!(Value::key("name", "p,q=1").into_string(), "name=p,,q=1");
    }
}
