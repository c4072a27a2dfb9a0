package main

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/hooklatch/hooklatch/verify"
)

// schemaOfConfig describes the file for editors. What only a reader of the whole
// file can find stays with config check.
func schemaOfConfig() (*jsonschema.Schema, error) {
	types := configTypes()
	recipe, err := schemaOfRecipe()
	if err != nil {
		return nil, err
	}
	one := []*jsonschema.Schema{presetName(), recipe}
	two := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{AnyOf: one}, MinItems: jsonschema.Ptr(2), MaxItems: jsonschema.Ptr(2)}
	types[reflect.TypeFor[schemeConfig]()] = &jsonschema.Schema{AnyOf: append(one, two)}
	schema, err := jsonschema.For[config](&jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		return nil, err
	}
	for _, c := range choices() {
		if err := describe(schema, c); err != nil {
			return nil, err
		}
	}
	sign := schema.Properties["destinations"].AdditionalProperties.Properties["sign"]
	key := sign.Items
	*sign = jsonschema.Schema{Description: sign.Description, AnyOf: []*jsonschema.Schema{key.CloneSchemas(), {Type: "array", Items: key, MinItems: jsonschema.Ptr(1)}}}
	schema.Schema = "https://json-schema.org/draft/2020-12/schema"
	schema.Title = "hooklatch configuration"
	return schema, nil
}

// fieldText is what the schema says of a field beyond its type. In its path, *
// is any name and [] any entry.
type fieldText struct {
	path        string
	description string // "": it has one
	choices     []string
}

// choices are the fields of which every value is known.
func choices() []fieldText {
	return []fieldText{
		{path: "tls.mode", choices: []string{"files", "off"}},
		{path: "database.migrate", choices: []string{"check", "auto"}},
		{path: "database.pooler", choices: []string{"none", "pgbouncer"}},
		{path: "sources.*.keys.[].encoding", choices: keyEncodings[1:]},
		{path: "sources.*.handshake.confirm", choices: confirmChoices},
		{path: "sources.*.ordering", choices: orderings},
		{path: "sources.*.types.else", choices: typeChoices},
		{path: "sources.*.on_conflict", choices: conflictRules},
		{path: "sources.*.body_guard", choices: guardSwitch},
		{path: "destinations.*.responses.*", choices: responseChoices},
		{path: "destinations.*.sign.[].encoding", choices: signEncodings},
		{path: "destinations.*.login.mechanism", choices: loginMechanisms},
		{path: "log.level", choices: logLevels},
		{path: "log.format", choices: []string{"json", "text"}},
	}
}

func describe(schema *jsonschema.Schema, f fieldText) error {
	for _, name := range strings.Split(f.path, ".") {
		switch name {
		case "*":
			schema = schema.AdditionalProperties
		case "[]":
			schema = schema.Items
		default:
			schema = schema.Properties[name]
		}
		if schema == nil {
			return fmt.Errorf("no field %s", f.path)
		}
	}
	if f.description != "" {
		schema.Description = f.description
	}
	for _, c := range f.choices {
		schema.Enum = append(schema.Enum, c)
	}
	return nil
}

func presetName() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: "a built-in scheme"}
	for _, name := range verify.Presets() {
		s.Enum = append(s.Enum, name)
	}
	return s
}

// fieldPattern is the grammar of verify.ParseField, but for the number of names.
const fieldPattern = "^(/([^~]|~[01])*|json:(/([^~]|~[01])*|[^./][^.]*(\\.[^.]+)*)|header:[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}|(form|query):.+|body_sha256_hex)$"

// configTypes describes the values that more than one kind of node can stand for.
func configTypes() map[reflect.Type]*jsonschema.Schema {
	text := func(pattern, example string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: pattern, Examples: []any{example}}
	}
	name := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description}
	}
	names := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: description}
	}
	object := func(required []string, properties map[string]*jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", Required: required, Properties: properties, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	}
	return map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[duration]():  text(`^([0-9]+(ms|s|m|h|d))+$`, "300s"),
		reflect.TypeFor[size]():      {AnyOf: []*jsonschema.Schema{{Type: "integer"}, text(`^[0-9]+([KMG]iB|[kKMG]?B)?$`, "256KiB")}},
		reflect.TypeFor[pace]():      text(`^[0-9]+/[smh]$`, "50/s"),
		reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"},
		reflect.TypeFor[fieldConfig](): {Type: "string", Pattern: fieldPattern,
			Examples: []any{"/data/id", "json:data.id", "header:X-Event-Id", "form:id", "query:id", "body_sha256_hex"}},
		reflect.TypeFor[secretRef](): {OneOf: []*jsonschema.Schema{
			object([]string{"file"}, map[string]*jsonschema.Schema{
				"file": name("file that neither group nor others may write; one final line end is cut")}),
			object([]string{"env"}, map[string]*jsonschema.Schema{
				"env": name("environment variable, taken as it is")}),
			object([]string{"exec"}, map[string]*jsonschema.Schema{
				"exec": names("program and its arguments, never given to a shell; one final line end of its output is cut")}),
		}},
		reflect.TypeFor[routeConfig](): {AnyOf: []*jsonschema.Schema{
			name("name of a destination"),
			object([]string{"to"}, map[string]*jsonschema.Schema{
				"to":    name("name of a destination"),
				"types": names("event types that are handed on, such as invoice.paid, invoice.* or *; defaults to all, and deliveries without a type"),
			})}},
	}
}
