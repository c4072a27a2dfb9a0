package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/verify"
)

func devCommand(s *stdio) *cli.Command {
	return &cli.Command{
		Name:  "dev",
		Usage: "try it: a private Postgres, one source, an app that answers, and a live view",
		Description: example("Run everything on this machine without a configuration: a Postgres that is thrown away at\n"+
			"the end, a source named dev, and an app that answers 200 to everything. Each request and\n"+
			"each attempt is one line. It listens on loopback only. \"ready\" comes after a signed\n"+
			"delivery was committed. DATABASE_URL, where set, is used in place of the private Postgres,\n"+
			"unless it holds deliveries of other sources than dev. The start-up delivery, of type\n"+
			"hooklatch.test, goes to the app too, also to one of --to.",
			"hooklatch dev",
			"hooklatch dev --to http://127.0.0.1:3000/webhooks --scheme stripe --record ./captured"),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "to", Usage: "hand deliveries to this `URL`; a built-in app that answers 200 if left out"},
			&cli.StringFlag{Name: "scheme", Value: "zhisou-v1", Usage: "built-in scheme `NAME` of the source"},
			&cli.StringFlag{Name: "recipe", TakesFile: true, Usage: "`FILE` with a scheme that is not built in, YAML or JSON; - is stdin"},
			&cli.StringFlag{Name: "ordering", Value: "none", Usage: "`KIND` of order by /resource/revision of bodies: none latest coalesce strict"},
			&cli.StringFlag{Name: "keep", Usage: "keep the data in this `DIR` and go on with it the next time"},
			&cli.BoolFlag{Name: "print-secret", Usage: "show the secret of the key"},
			&cli.StringFlag{Name: "events", Value: "lines", Usage: "live view as `KIND`: lines, json or quiet"},
			&cli.StringFlag{Name: "record", Usage: "write each request into this `DIR`, as a raw HTTP file"},
			&cli.BoolFlag{Name: "json", Usage: "the same as --events json"},
		},
		Subcommands: []*cli.Command{sendCommand(s)},
		Action: func(c *cli.Context) error {
			if _, err := arguments(c); err != nil {
				return err
			}
			ctx := c.Context
			if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
				// Closing the terminal is a way to end it too.
				var stop context.CancelFunc
				ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
				defer stop()
			}
			o := devOptions{
				to: c.String("to"), scheme: c.String("scheme"), keep: c.String("keep"), record: c.String("record"),
				events: c.String("events"), printSecret: c.Bool("print-secret"), ordering: c.String("ordering"),
			}
			if o.recipe = c.String("recipe"); o.recipe != "" && c.IsSet("scheme") {
				return usagef("leave one of them out", "dev: --scheme and --recipe both say how the source is signed")
			}
			if c.Bool("json") {
				o.events = "json"
			}
			return dev(ctx, s, o)
		},
	}
}

type devOptions struct {
	to, scheme, recipe, keep, record string
	events, ordering                 string
	printSecret                      bool
}

const (
	devSource = "dev"
	devPath   = "/in/dev"
	devKey    = "dev-1"
	devPort   = 8787

	// devEcho and devApp name the destination. They are two, so that what a kept
	// database still holds for one does not go to the other.
	devEcho = "echo"
	devApp  = "app"
)

// devStop is how dev stops: a person waits for it.
var devStop = stopConfig{Shutdown: duration(2 * time.Second), Attempts: duration(3 * time.Second), Total: duration(10 * time.Second)}

// devRun is one run of dev.
type devRun struct {
	s *stdio
	o devOptions

	scheme verify.Scheme
	state  devState
	events *devEvents
	url    string // of the database
	data   string // what becomes of the data, for the last line
}

func dev(ctx context.Context, s *stdio, o devOptions) error {
	if !slices.Contains([]string{"lines", "json", "quiet"}, o.events) {
		return usagef("--events lines", "dev: unknown events %q: lines, json and quiet are known", o.events)
	}
	if !slices.Contains(orderings, o.ordering) {
		return usagef("--ordering strict", "dev: unknown ordering %q: %s are known", o.ordering, listed(orderings))
	}
	if u, err := url.Parse(o.to); o.to != "" && (err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https") {
		return usagef("--to http://127.0.0.1:3000/webhooks", "dev: %q is no http or https URL without a password", o.to)
	}
	scheme, err := schemeOptions{scheme: o.scheme, recipe: o.recipe}.compile(ctx, s)
	if err != nil {
		return err
	}
	format, err := schemeKeyFormat(scheme)
	if err != nil {
		return err
	}
	key, err := makeKey(format, scheme.SecretSpec())
	if err != nil {
		return fmt.Errorf("dev: make a key: %w", err)
	}
	d := &devRun{s: s, o: o, scheme: scheme, events: newDevEvents(s, o.events)}
	d.state = devState{V: 1, PID: os.Getpid(), Scheme: o.scheme, KeyID: devKey, Secret: key.secret, MaxBody: verify.DefaultMaxBody}
	if o.recipe != "" {
		recipe := scheme.Recipe()
		d.state.Scheme, d.state.Recipe = cmp.Or(recipe.Name, o.recipe), &recipe
	}
	if err := d.run(ctx); err != nil && (ctx.Err() == nil || !errors.Is(err, context.Canceled)) {
		return err
	}
	return nil
}

func (d *devRun) run(ctx context.Context) error {
	d.events.head("hooklatch", "%s, for development: loopback only, no configuration is read", readVersion().Version)
	stop, err := d.database(ctx)
	if err != nil {
		return err
	}
	defer stop()

	wrap := func(h http.Handler) http.Handler { return noteWireID(d.scheme, h) }
	if d.o.record != "" {
		r, err := newRecorder(d.o.record, d.state.MaxBody, d.events.trouble)
		if err != nil {
			return fail(exitUsage, fmt.Errorf("dev: record: %w", err), "--record DIR, a folder that you may write to")
		}
		wrap = func(h http.Handler) http.Handler { return r.wrap(noteWireID(d.scheme, h)) }
	}
	destination, to, stopEcho, err := d.destination(ctx)
	if err != nil {
		return err
	}
	defer stopEcho()
	ls, err := d.listeners(ctx)
	if err != nil {
		return err
	}
	d.state.URL = "http://" + ls.http.Addr().String() + devPath
	d.state.Admin = "http://" + ls.admin.Addr().String()
	d.state.Database = d.url
	v, err := d.state.verifier()
	if err == nil {
		err = v.Check()
	}
	if err != nil {
		ls.close()
		return usagef("another --scheme or --recipe", "dev: %s", withoutPackage(err))
	}
	d.events.destination = destination
	server := &server{
		cfg: d.config(ls, destination, to), secrets: &secrets{DatabaseURL: d.url, Verifiers: map[string]*verify.Verifier{devSource: v}},
		log: slog.New(&devLog{events: d.events}), receives: true, forwards: true, throwaway: true,
		onRequest: d.events.request, onExplain: d.events.explained, onAttempt: d.events.attempt, wrap: wrap,
	}
	return d.serve(ctx, server, ls, v)
}

// serve runs the server, sees one delivery through, and shows the rest.
func (d *devRun) serve(ctx context.Context, server *server, ls listeners, v *verify.Verifier) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	server.onReady = func() { close(ready) }
	ended := make(chan error, 1)
	go func() { ended <- server.run(ctx, ls) }()
	select {
	case err := <-ended:
		return err
	case <-ready:
	}
	err := d.begin(ctx, v)
	if err == nil {
		defer d.state.remove()
		select {
		case <-ctx.Done():
		case err = <-ended:
			ended <- nil
		}
	}
	cancel()
	// A server that has ended is why the start-up delivery failed.
	err = errors.Join(<-ended, err)
	if err == nil {
		d.events.summary(d.data)
	}
	return err
}

// listeners binds the ports that people know, or any others.
func (d *devRun) listeners(ctx context.Context) (listeners, error) {
	either := func(key string, port int) (net.Listener, error) {
		l, err := listen(ctx, key, fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil && ctx.Err() == nil {
			return listen(ctx, key, "127.0.0.1:0")
		}
		return l, err
	}
	var ls listeners
	var err error
	if ls.http, err = either("source", devPort); err != nil {
		return ls, err
	}
	if ls.admin, err = either("admin", 9470); err != nil {
		ls.close()
	}
	return ls, err
}

// destination finds the app, or starts one.
func (d *devRun) destination(ctx context.Context) (name, to string, stop func(), err error) {
	if d.o.to != "" {
		d.events.head("destination", "app: %s", maskURL(d.o.to))
		return devApp, d.o.to, func() {}, nil
	}
	l, err := listen(ctx, "echo", "127.0.0.1:0")
	if err != nil {
		return "", "", nil, err
	}
	server := newEcho()
	var serving sync.WaitGroup
	serving.Go(func() { server.Serve(l) })
	d.events.head("destination", "echo: built in, answers 200   (choose an app of yours with --to URL)")
	return devEcho, "http://" + l.Addr().String() + "/", func() {
		server.Close()
		serving.Wait()
	}, nil
}

// recipe is that of --recipe; nil: a built-in scheme was named.
func (d *devRun) recipe() json.RawMessage {
	if d.state.Recipe == nil {
		return nil
	}
	text, err := json.Marshal(d.state.Recipe)
	if err != nil {
		return nil // it was read from JSON
	}
	return text
}

// config is what a configuration file would have said.
func (d *devRun) config(ls listeners, destination, to string) *config {
	source := &sourceConfig{
		Tenant: "dev", Path: devPath, Scheme: schemeConfig{name: d.o.scheme, recipe: d.recipe()}, MaxBody: size(d.state.MaxBody),
		Keys: []keyConfig{{ID: devKey}}, Forward: []routeConfig{{To: destination}}, Ordering: d.o.ordering, Resource: defaultResource(),
	}
	source.Event.ID.UnmarshalText([]byte(devEventID))
	if d.scheme.Recipe().EventType == nil {
		source.Event.Type.UnmarshalText([]byte("/type"))
	}
	c := &config{
		file: "dev", Version: 1,
		Listen:  listenConfig{HTTP: ls.http.Addr().String(), Admin: ls.admin.Addr().String()},
		Sources: map[string]*sourceConfig{devSource: source},
		// Whoever runs it names the app, often by a name of this machine.
		Destinations: map[string]*destinationConfig{destination: {URL: to, Addresses: []string{"0.0.0.0/0", "::/0"}}},
	}
	c.fill()
	c.Stop = devStop
	return c
}

var errOthersData = errors.New("it holds deliveries of other sources than dev")

const hasInboxSQL = `SELECT to_regclass('hooklatch.inbox') IS NOT NULL`

// refuseOthersData keeps dev away from a database that is in use.
func refuseOthersData(ctx context.Context, url string) error {
	store, pool, err := openStore(ctx, url, "none", "dev", adminConnections, inbox.Config{})
	if err != nil {
		return unreachable(ctx, url, err)
	}
	defer pool.Close()
	var exists bool
	if err := pool.QueryRow(ctx, hasInboxSQL).Scan(&exists); err != nil {
		return unreachable(ctx, url, err)
	}
	if !exists {
		return nil
	}
	names, err := store.Sources(ctx)
	if err != nil {
		return unreachable(ctx, url, err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == devSource })
	if len(names) > 0 {
		return fail(exitUsage, fmt.Errorf("dev: DATABASE_URL: %w: %s", errOthersData, listed(names)), "unset DATABASE_URL   for a private Postgres, or name another database")
	}
	return nil
}
