package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

func keysCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "keys",
		Usage: "look at the use of signing keys",
		Description: example("Say which keys are in use, and which may go.",
			"hooklatch keys list --source acme-stripe"),
		Subcommands: []*cli.Command{keysListCommand(s)},
	}
}

func keysListCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list keys with their span, last use and share, and whether each may be retired",
		Description: example("List the keys of the configuration, and those that were used and stand in it no more.\n"+
			"share is the key's part of the new deliveries that the source has accepted since the\n"+
			"time that the header names, at most 90 days ago; repeats of a delivery are not counted,\n"+
			"but are a use.\n"+
			"No secret is read. The server need not run; one that does is behind by a few seconds.\n"+
			"The database is that of the configuration.",
			"hooklatch keys list -c hooklatch.yaml",
			"hooklatch keys list --source acme-stripe --since 30d --json"),
		Flags: append(databaseFlags(),
			&cli.StringFlag{Name: "source", Usage: "only of this source `NAME`"},
			&cli.StringFlag{Name: "since", Value: "7d", Usage: "share of what was accepted since this `TIME`, an age or RFC 3339"}),
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			return keysList(c.Context, s, configFile(c), c.String("source"), c.String("since"), c.Bool("json"))
		},
	}
}

func keysList(ctx context.Context, s *stdio, file, source, since string, asJSON bool) error {
	now := time.Now()
	from, err := parseMoment("--since", since, now)
	if err != nil {
		return err
	}
	if !from.Before(now) {
		return usagef("--since 7d", "keys list: --since %s lies ahead", since)
	}
	if oldest := now.Add(-inbox.KeyUseAge); from.Before(oldest) {
		from = oldest // a share since then would be one of a part
	}
	from = from.Truncate(time.Hour) // uses are counted by the hour
	cfg, err := readConfig(file)
	if err != nil {
		return err
	}
	if known := slices.Sorted(maps.Keys(cfg.Sources)); source != "" && cfg.Sources[source] == nil {
		return usagef("--source "+known[0], "%s has no source %q: %s", file, source, configured(known))
	}
	return whichDatabase{config: file}.withStore(ctx, func(store *inbox.Store) error {
		r := newKeyReport(cfg, source, from, now)
		for u, err := range store.KeyUsages(ctx, inbox.KeyUsageFilter{Source: source, Since: from}) {
			if err != nil {
				return err
			}
			r.used(u)
		}
		return r.print(s, asJSON)
	})
}

// The states of a key. A key that retires is active too.
const (
	keyActive      = "active"
	keyRetiring    = "retiring"
	keyNotYetValid = "not yet valid"
	keyExpired     = "expired"
	keyRemoved     = "not configured"
)

// keyLine is the JSON of a key.
type keyLine struct {
	V         int        `json:"v"`
	Source    string     `json:"source"`
	Tenant    string     `json:"tenant"`
	KeyID     string     `json:"key_id"`
	Scheme    string     `json:"scheme"`
	State     string     `json:"state"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	NotAfter  *time.Time `json:"not_after,omitempty"`
	LastUsed  *time.Time `json:"last_used"` // null: no use is known

	Since          time.Time `json:"since"`
	Accepted       int64     `json:"accepted"`        // with this key since then
	SourceAccepted int64     `json:"source_accepted"` // with any key
	Retiring       int64     `json:"retiring"`        // of accepted, while a later key was active

	SafeToRetire bool   `json:"safe_to_retire"`
	Verdict      string `json:"verdict"`

	alone  bool // no other key is active
	newest bool // every other active key became valid earlier, or is for the scheme that the sender leaves
}

// keyReport brings the configuration and the uses together.
type keyReport struct {
	from, now time.Time
	keys      []*keyLine
	accepted  map[string]int64     // by source
	recorded  map[string]time.Time // by source: the first hour of any key
}

func newKeyReport(c *config, source string, from, now time.Time) *keyReport {
	r := &keyReport{from: from, now: now, accepted: map[string]int64{}, recorded: map[string]time.Time{}}
	for _, name := range slices.Sorted(maps.Keys(c.Sources)) {
		if src := c.Sources[name]; source == "" || source == name {
			for _, k := range src.Keys {
				r.keys = append(r.keys, newKeyLine(name, src, k, now))
			}
		}
	}
	return r
}

func (k keyConfig) active(t time.Time) bool {
	return verify.Key{NotBefore: k.NotBefore, NotAfter: k.NotAfter}.Active(t)
}

func newKeyLine(source string, src *sourceConfig, k keyConfig, now time.Time) *keyLine {
	line := &keyLine{V: 1, Source: source, Tenant: src.Tenant, KeyID: k.ID, NotBefore: moment(k.NotBefore), NotAfter: moment(k.NotAfter), State: keyActive}
	schemes, err := src.compile()
	if err == nil {
		line.Scheme = cmp.Or(k.Scheme, schemes[0].Name())
	}
	// Of two schemes the second is the one that the sender goes over to.
	second := func(k keyConfig) bool { return len(schemes) == 2 && k.Scheme == schemes[1].Name() }
	later := false
	line.alone, line.newest = true, true
	for _, other := range src.Keys {
		if other.ID == k.ID || !other.active(now) {
			continue
		}
		line.alone = false
		if len(schemes) < 2 || other.Scheme == k.Scheme {
			line.newest = line.newest && other.NotBefore.Before(k.NotBefore)
			later = later || other.NotBefore.After(k.NotBefore)
		} else {
			line.newest = line.newest && second(k)
		}
	}
	switch {
	case now.Before(k.NotBefore):
		line.State = keyNotYetValid
	case !k.active(now):
		line.State = keyExpired
	case !k.NotAfter.IsZero() && later:
		line.State = keyRetiring
	}
	return line
}

// used adds what the database knows of one key.
func (r *keyReport) used(u inbox.KeyUsage) {
	r.accepted[u.Source] += u.Accepted
	if first, known := r.recorded[u.Source]; !known || u.FirstHour.Before(first) {
		r.recorded[u.Source] = u.FirstHour
	}
	var line *keyLine
	for _, k := range r.keys {
		if k.Source == u.Source && k.KeyID == u.KeyID && k.Tenant == u.Tenant {
			line = k
		}
	}
	if line == nil {
		line = &keyLine{V: 1, Source: u.Source, Tenant: u.Tenant, KeyID: u.KeyID, Scheme: u.Scheme, State: keyRemoved}
		r.keys = append(r.keys, line)
	}
	line.Accepted += u.Accepted
	line.Retiring += u.Retiring
	if line.LastUsed == nil || u.LastUsed.After(*line.LastUsed) {
		line.LastUsed = moment(u.LastUsed)
	}
}

// judge says what may be done with a key. It is safe only on evidence: the source
// has accepted deliveries, over the whole window, and none with this key.
func (r *keyReport) judge(k *keyLine) {
	k.Since, k.SourceAccepted = r.from.UTC(), r.accepted[k.Source]
	recorded, known := r.recorded[k.Source]
	switch used := k.LastUsed != nil && !k.LastUsed.Before(r.from); {
	case k.State == keyNotYetValid:
		k.Verdict = "valid from " + k.NotBefore.Format(time.RFC3339)
	case k.State == keyExpired:
		k.Verdict = fmt.Sprintf("expired %s ago: refused", age(r.now.Sub(*k.NotAfter)))
	case k.State == keyRemoved:
		k.Verdict = "used before, in the configuration no more"
	case k.alone:
		k.Verdict = "the only active key: do not retire"
	case k.newest && used:
		k.Verdict = "the newest key, in use"
	case k.newest:
		k.Verdict = "the newest key, not in use yet"
	case used && k.Accepted == 0:
		k.Verdict = k.KeyID + " still signs repeats: do not retire"
	case used:
		k.Verdict = fmt.Sprintf("%s still signs %s: do not retire", k.KeyID, k.share())
	case !known || k.SourceAccepted == 0:
		k.Verdict = "cannot tell: nothing was accepted since then"
	case recorded.After(r.from):
		k.Verdict = "cannot tell yet: uses are known since " + recorded.UTC().Format(time.RFC3339) + " only"
	default:
		k.SafeToRetire, k.Verdict = true, "safe to retire: it has signed nothing since then"
	}
}

// share is the key's part of what the source has accepted.
func (k *keyLine) share() string {
	switch {
	case k.SourceAccepted == 0:
		return "–"
	case k.Accepted == 0:
		return "0 %"
	}
	percent := float64(k.Accepted) * 100 / float64(k.SourceAccepted)
	switch {
	case percent < 0.1:
		return "under 0.1 %"
	case percent < 1 || percent > 99 && percent < 100:
		return fmt.Sprintf("%.1f %%", percent)
	}
	return fmt.Sprintf("%.0f %%", percent)
}

// age is a duration in its largest unit.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d >= time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func (r *keyReport) print(s *stdio, asJSON bool) error {
	slices.SortStableFunc(r.keys, func(a, b *keyLine) int { return strings.Compare(a.Source, b.Source) })
	var rows [][]string
	for _, k := range r.keys {
		r.judge(k)
		if asJSON {
			if err := printJSON(s.out, k); err != nil {
				return err
			}
			continue
		}
		last := "never seen"
		if k.LastUsed != nil {
			last = k.LastUsed.Format("2006-01-02 15:04:05")
		}
		rows = append(rows, []string{k.Source, k.KeyID, k.Scheme, k.State, k.span(), last,
			fmt.Sprintf("%s of %d", k.share(), k.SourceAccepted), k.Verdict})
	}
	if len(rows) > 0 {
		share := fmt.Sprintf("share of accepted since %s", r.from.UTC().Format("2006-01-02 15:04"))
		s.printTable([]string{"source", "key", "scheme", "state", "valid (UTC)", "last use (UTC)", share, "verdict"}, rows)
	}
	return nil
}

// span is when the key is accepted.
func (k *keyLine) span() string {
	const day = "2006-01-02 15:04"
	switch {
	case k.NotBefore != nil && k.NotAfter != nil:
		return k.NotBefore.Format(day) + " to " + k.NotAfter.Format(day)
	case k.NotBefore != nil:
		return "from " + k.NotBefore.Format(day)
	case k.NotAfter != nil:
		return "to " + k.NotAfter.Format(day)
	case k.State == keyRemoved:
		return "–"
	}
	return "always"
}
