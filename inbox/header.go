package inbox

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// encodeHeader writes received headers as "Name: value" lines, sorted by name,
// repeats in their order. Values are bytes: they need not be UTF-8.
func encodeHeader(header map[string][]string) ([]byte, error) {
	size := 0
	for name, values := range header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \n")
		}
	}
	buf := make([]byte, 0, size)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if name == "" || strings.ContainsAny(name, ":\r\n\x00") {
			return nil, fmt.Errorf("header name %q cannot be stored", name)
		}
		for _, v := range header[name] {
			if strings.ContainsAny(v, "\r\n") {
				return nil, fmt.Errorf("value of header %s holds a line break", name)
			}
			buf = append(buf, name...)
			buf = append(buf, ": "...)
			buf = append(buf, v...)
			buf = append(buf, '\n')
		}
	}
	return buf, nil
}

// decodeHeader reads what encodeHeader wrote.
func decodeHeader(lines []byte) map[string][]string {
	header := make(map[string][]string)
	for line := range bytes.Lines(lines) {
		name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		header[string(name)] = append(header[string(name)], string(value))
	}
	return header
}
