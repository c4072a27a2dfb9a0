package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/verify"
)

// schemeOptions say how something is signed and with which keys: by themselves,
// or as a source of a configuration has it.
type schemeOptions struct {
	scheme, recipe string
	secretFiles    []string // [ID=]FILE
	config, source string
	signs          bool // of a pair, the keys are the private ones

	keyID     string
	tolerance string
	params    []string // name=value
	url       string
}

func schemeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "scheme", Usage: "built-in scheme `NAME`"},
		&cli.StringFlag{Name: "recipe", TakesFile: true, Usage: "`FILE` with a scheme that is not built in, YAML or JSON; - is stdin"},
		&cli.StringSliceFlag{Name: "secret-file", TakesFile: true, Usage: "`[ID=]FILE` with a secret, repeatable; without ID it answers to every key id; - is stdin"},
		configFlag(),
		&cli.StringFlag{Name: "source", Usage: "`NAME` of a source of the configuration: its scheme and keys; of two schemes that of --scheme, else the one that the request has, to sign the first"},
		&cli.StringFlag{Name: "key-id", Usage: "use only the key of this `ID`; names a secret file that has none"},
		&cli.StringSliceFlag{Name: "param", Usage: "`NAME=VALUE` of a parameter of the scheme, repeatable"},
	}
}

func readSchemeOptions(c *cli.Context) schemeOptions {
	return schemeOptions{
		scheme: c.String("scheme"), recipe: c.String("recipe"), secretFiles: c.StringSlice("secret-file"),
		config: configFile(c), source: c.String("source"),
		keyID: c.String("key-id"), tolerance: c.String("tolerance"), params: c.StringSlice("param"), url: c.String("url"),
	}
}

// signing is for keys that sign.
func (o schemeOptions) signing() schemeOptions {
	o.signs = true
	return o
}

// named says whether the options name any scheme.
func (o schemeOptions) named() bool { return o.scheme != "" || o.recipe != "" || o.source != "" }

// verifier makes what the options describe, for who signs.
func (o schemeOptions) verifier(ctx context.Context, s *stdio) (*verify.Verifier, error) {
	all, err := o.unplaced(ctx, s)
	if err != nil {
		return nil, err
	}
	return all[0], signsAt(all[0], o.url)
}

// signsAt gives v the URL that is signed, unless the configuration has one.
func signsAt(v *verify.Verifier, url string) error {
	if v.URL == "" {
		// Its query is that of the request, which is signed with it.
		before, query, _ := strings.Cut(url, "?")
		if v.URL = before; query == "" {
			v.URL = url
		}
	}
	err := v.Check()
	if err == nil {
		return nil
	}
	try := ""
	for _, name := range v.Scheme.Recipe().Params {
		if strings.HasSuffix(err.Error(), "needs the parameter "+name) {
			try = "--param " + name + "=VALUE"
		}
	}
	if try == "" && v.Scheme.NeedsURL() && !strings.Contains(v.URL, "://") {
		try = "--url URL, as the sender knows it"
	}
	return fail(exitConfig, errors.New(withoutPackage(err)), try)
}

// unplaced are verifiers without a URL: two where a source has two schemes, and no
// option says which.
func (o schemeOptions) unplaced(ctx context.Context, s *stdio) ([]*verify.Verifier, error) {
	all, err := o.unbound(ctx, s)
	if err == nil {
		err = o.checkParams(all)
	}
	for i := 0; err == nil && i < len(all); i++ {
		err = o.bind(all[i])
	}
	if err == nil && o.keyID != "" {
		all, err = useKey(all, o.keyID)
	}
	return all, err
}

// checkParams refuses a parameter that no scheme has: misspelled, it would be unset.
func (o schemeOptions) checkParams(all []*verify.Verifier) error {
	var known []string
	var schemes []verify.Scheme
	for _, v := range all {
		schemes = append(schemes, v.Scheme)
		known = append(known, v.Scheme.Recipe().Params...)
	}
	for _, p := range o.params {
		name, _, _ := strings.Cut(p, "=")
		if slices.Contains(known, name) {
			continue
		}
		try := "leave --param out"
		if len(known) > 0 {
			try = "--param " + known[0] + "=VALUE"
		}
		return usagef(try, "%s has no param %q", titles(schemes), name)
	}
	return nil
}

// bind gives v what the options say of it.
func (o schemeOptions) bind(v *verify.Verifier) (err error) {
	if o.tolerance != "" {
		if v.Tolerance, err = parseTolerance(o.tolerance); err != nil {
			return err
		}
	}
	for _, p := range o.params {
		name, value, ok := strings.Cut(p, "=")
		if !ok {
			return usagef("--param NAME=VALUE", "param %q has no value", p)
		}
		if v.Params == nil {
			v.Params = map[string]string{}
		}
		v.Params[name] = value
	}
	return nil
}

func (o schemeOptions) unbound(ctx context.Context, s *stdio) ([]*verify.Verifier, error) {
	ways := 0
	for _, way := range []string{o.scheme, o.recipe, o.source} {
		if way != "" {
			ways++
		}
	}
	if o.source != "" && o.scheme != "" && o.recipe == "" {
		ways = 1 // which of the source's two
	}
	if ways != 1 {
		return nil, usagef("--scheme NAME --secret-file FILE, or -c FILE --source NAME", "one of --scheme, --recipe and --source says how it is signed; %d are given", ways)
	}
	if o.source != "" {
		if len(o.secretFiles) > 0 {
			return nil, usagef("leave --secret-file out", "the keys of --source come from the configuration")
		}
		c, err := readConfig(o.config)
		if err != nil {
			return nil, err
		}
		all, err := c.sourceVerifiers(ctx, o.source)
		if err != nil {
			return nil, err
		}
		return o.ofSource(all)
	}
	scheme, err := o.compile(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(o.secretFiles) == 0 {
		return nil, usagef("--secret-file FILE   (hooklatch keygen -o FILE makes one)", "no secret is named")
	}
	var keys []verify.Key
	for _, file := range o.secretFiles {
		key, err := o.key(ctx, s, file, scheme)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	set, err := verify.NewKeySet(keys...)
	if err != nil {
		return nil, fail(exitConfig, errors.New(withoutPackage(err)), "")
	}
	return []*verify.Verifier{{Scheme: scheme, Keys: set}}, nil
}

// compile finds the preset or reads the recipe.
func (o schemeOptions) compile(ctx context.Context, s *stdio) (verify.Scheme, error) {
	if o.recipe == "" {
		return presetScheme(o.scheme, "--recipe FILE   for a scheme that is not built in")
	}
	text, err := readInput(ctx, s, o.recipe)
	if err != nil {
		return verify.Scheme{}, err
	}
	file := o.recipe
	if file == "-" {
		file = "stdin"
	}
	return parseRecipe(file, text)
}

// ofSource leaves of a source's verifiers the one whose scheme is named, if one is.
func (o schemeOptions) ofSource(all []*verify.Verifier) ([]*verify.Verifier, error) {
	if o.scheme == "" {
		return all, nil
	}
	var names []string
	for _, v := range all {
		if names = append(names, v.Scheme.Name()); v.Scheme.Name() == o.scheme {
			return []*verify.Verifier{v}, nil
		}
	}
	return nil, usagef("--scheme "+names[0], "source %s has no scheme %q: %s", o.source, o.scheme, listed(names))
}

// presetScheme finds a built-in scheme by its name. try is for a name that is like
// none of them.
func presetScheme(name, try string) (verify.Scheme, error) {
	scheme, ok := verify.Preset(name)
	if ok {
		return scheme, nil
	}
	if near := nearest(name, verify.Presets()); near != "" {
		return verify.Scheme{}, usagef("--scheme "+near, "no scheme is called %q", name)
	}
	return verify.Scheme{}, usagef(try, "no scheme is called %q: %s are built in", name, listed(verify.Presets()))
}

func (o schemeOptions) key(ctx context.Context, s *stdio, named string, scheme verify.Scheme) (verify.Key, error) {
	id, file, ok := strings.Cut(named, "=")
	if !ok || strings.Contains(id, "/") {
		id, file = "", named
	}
	if id == "" && o.keyID != "" {
		id = o.keyID
	}
	var text []byte
	var err error
	if file == "-" {
		text, err = s.readIn(ctx, maxSecretFile+1)
		text = verify.TrimSecretFile(text)
	} else {
		text, err = readSecretFile(file)
	}
	if ctx.Err() != nil {
		return verify.Key{}, ctx.Err()
	}
	if err != nil {
		code, try := exitConfig, ""
		switch {
		case errors.Is(err, fs.ErrNotExist):
			code, try = exitUsage, "hooklatch keygen -o "+file
		case errors.Is(err, errStdinTwice):
			code = exitUsage
		}
		return verify.Key{}, fail(code, fmt.Errorf("read secret: %w", err), try)
	}
	spec := scheme.SecretSpec()
	if o.signs {
		spec = signingSpec(scheme)
	}
	key, err := verify.NewKey(id, text, spec)
	if err != nil {
		what := strings.TrimPrefix(withoutPackage(err), `key "": `) // it has no id
		return verify.Key{}, fail(exitConfig, fmt.Errorf("%s (%s)", what, file), o.publicHalf(file))
	}
	return key, nil
}

// publicHalf names the other file of a pair that keygen has made, where the private
// one was given to verify with.
func (o schemeOptions) publicHalf(file string) string {
	if _, err := os.Stat(file + publicSuffix); err != nil || o.signs {
		return ""
	}
	return "--secret-file " + shellQuote(file+publicSuffix) + "   the public key of the pair"
}

// useKey leaves the verifier that has a key of that id, and of its keys only that one.
func useKey(all []*verify.Verifier, id string) ([]*verify.Verifier, error) {
	var ids []string
	for _, v := range all {
		for _, k := range v.Keys.Keys() {
			if k.ID == id {
				set, err := verify.NewKeySet(k)
				v.Keys = set
				return []*verify.Verifier{v}, err
			}
			ids = append(ids, k.ID)
		}
	}
	return nil, usagef("--key-id "+ids[0], "no key has the id %q: %s are there", id, listed(ids))
}

// parseTolerance reads a duration, or plain seconds as --now has them.
func parseTolerance(text string) (time.Duration, error) {
	if _, err := strconv.ParseUint(text, 10, 32); err == nil {
		text += "s"
	}
	d, err := parseDuration(text)
	if err == nil && d <= 0 {
		err = errors.New("tolerance must be more than 0")
	}
	if err != nil {
		return 0, usagef("--tolerance 300s", "%w", err)
	}
	return d, nil
}

// parseUnix reads a time in Unix seconds; empty is the zero time.
func parseUnix(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, usagef(flag+" 1700000000", "%s %q is no time in Unix seconds", flag, text)
	}
	return time.Unix(seconds, 0), nil
}
