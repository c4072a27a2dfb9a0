package main

import (
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/hooklatch/hooklatch/verify"
)

// fieldConfig is a place in a request.
type fieldConfig struct{ verify.Field }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *fieldConfig) UnmarshalText(text []byte) error {
	var err error
	if f.Field, err = verify.ParseField(string(text)); err != nil {
		return fmt.Errorf("%q is no place such as /data/id or header:X-Event-Id", text)
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (f fieldConfig) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

func (r *routeConfig) decodeNode(d *decoder, n ast.Node, path string) {
	if _, ok := n.(ast.MapNode); ok {
		type plain routeConfig
		d.object(n, reflect.ValueOf((*plain)(r)).Elem(), path)
		return
	}
	r.To, _ = d.text(n, path)
}
