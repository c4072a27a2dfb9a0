package proxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// framer speaks HTTP/2 by hand, to send what no client library would.
type framer struct {
	rw io.ReadWriter
}

const (
	frameData     = 0x0
	frameHeaders  = 0x1
	frameReset    = 0x3
	frameSettings = 0x4
	frameGoAway   = 0x7

	flagEndStream  = 0x1
	flagEndHeaders = 0x4
)

func newFramer(rw io.ReadWriter) *framer {
	io.WriteString(rw, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	f := &framer{rw: rw}
	f.write(frameSettings, 0, 0, []byte{0, 1, 0, 0, 0, 0}) // no header table: each block stands alone
	return f
}

func (f *framer) write(kind, flags byte, stream uint32, payload []byte) error {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	b = binary.BigEndian.AppendUint32(b, stream)
	_, err := f.rw.Write(append(b, payload...))
	return err
}

// headers sends the message's header, and more fields in pairs.
func (f *framer) headers(stream uint32, m *message, end bool, more ...string) error {
	var b []byte
	field := func(name, value string) {
		b = append(b, 0x00) // literal, not indexed, new name
		for _, s := range []string{name, value} {
			if len(s) >= 127 {
				panic("a longer string needs another encoding")
			}
			b = append(append(b, byte(len(s))), s...)
		}
	}
	field(":method", m.method)
	field(":scheme", "https")
	field(":authority", "hooks.example.com")
	field(":path", m.target)
	for _, h := range m.header {
		field(strings.ToLower(h[0]), h[1])
	}
	for i := 0; i < len(more); i += 2 {
		field(more[i], more[i+1])
	}
	flags := byte(flagEndHeaders)
	if end {
		flags |= flagEndStream
	}
	return f.write(frameHeaders, flags, stream, b)
}

func (f *framer) data(stream uint32, s string, end bool) error {
	flags := byte(0)
	if end {
		flags = flagEndStream
	}
	return f.write(frameData, flags, stream, []byte(s))
}

func (f *framer) reset(stream uint32) error {
	return f.write(frameReset, 0, stream, []byte{0, 0, 0, 8})
}

type frame struct {
	kind, flags byte
	stream      uint32
	payload     []byte
}

func (f *framer) next() (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(f.rw, head[:]); err != nil {
		return frame{}, err
	}
	fr := frame{kind: head[3], flags: head[4], stream: binary.BigEndian.Uint32(head[5:]) & (1<<31 - 1)}
	fr.payload = make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
	_, err := io.ReadFull(f.rw, fr.payload)
	return fr, err
}

// answer waits for the end of a stream. Its status is empty if there was none;
// reset says that the stream was reset.
func (f *framer) answer(stream uint32) (status string, reset bool) {
	for {
		fr, err := f.next()
		switch {
		case err != nil:
			return status, true
		case fr.stream != stream:
		case fr.kind == frameHeaders:
			status = statusOf(fr.payload)
			if fr.flags&flagEndStream != 0 {
				return status, false
			}
		case fr.kind == frameReset:
			return status, true
		case fr.kind == frameData && fr.flags&flagEndStream != 0:
			return status, false
		}
	}
}

// statusOf reads the first field of a header block, which net/http writes either
// from the static table or as a literal.
func statusOf(block []byte) string {
	for block[0]&0xe0 == 0x20 { // the size of the table
		block = block[1:]
	}
	static := map[byte]string{0x88: "200", 0x89: "204", 0x8b: "304", 0x8c: "400", 0x8d: "404", 0x8e: "500"}
	if s, ok := static[block[0]]; ok {
		return s
	}
	if name := block[0]; name >= 0x08 && name <= 0x0e && block[1] == 3 {
		return string(block[2:5])
	} else if name >= 0x08 && name <= 0x0e && block[1]&0x80 != 0 {
		// The digits are Huffman coded.
		return huffmanDigits(block[2 : 2+block[1]&0x7f])
	}
	return fmt.Sprintf("unreadable: %x", block)
}

func huffmanDigits(b []byte) (s string) {
	bits := ""
	for _, c := range b {
		for i := 7; i >= 0; i-- {
			bits += string('0' + rune(c>>i&1))
		}
	}
	codes := map[string]string{"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4",
		"011011": "5", "011100": "6", "011101": "7", "011110": "8", "011111": "9"}
	for len(s) < 3 {
		n := 5
		if _, ok := codes[bits[:5]]; !ok {
			n = 6
		}
		s += codes[bits[:n]]
		bits = bits[n:]
	}
	return s
}
