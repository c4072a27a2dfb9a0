package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/hooklatch/hooklatch/consumer"
	"github.com/hooklatch/hooklatch/inbox"
	"github.com/hooklatch/hooklatch/migrations"
	"github.com/hooklatch/hooklatch/proxy"
	"github.com/hooklatch/hooklatch/verify"
)

// server is one process that receives, forwards, or both: what serve and dev have
// in common. It is run once.
type server struct {
	cfg     *config
	secrets *secrets
	log     *slog.Logger

	receives, forwards bool
	throwaway          bool // the database is: missing durability is a warning

	onRequest func(context.Context, *proxy.Result) // takes the place of the log line; nil: none does
	onExplain func(*proxy.Explained)               // the same
	onAttempt func(*consumer.AttemptResult)        // the same
	wrap      func(http.Handler) http.Handler
	onReady   func()

	metrics *metrics
	health  *health
	pools   []*pgxpool.Pool
	look    *inbox.Store // for everything but the two paths

	proxy     *proxy.Proxy
	confirmer *confirmer
	tally     *tally // nil: the process does not receive
	public    *http.Server
	admin     *http.Server
	listeners listeners
	consumers map[string]*consumer.Consumer
	breakers  *breakers // nil: the process does not forward
	sinks     []sink
	revision  int64

	enrolling sync.Mutex
	enrolled  []tenantKey // since the start

	running     sync.WaitGroup // all but the consumers
	accepting   sync.WaitGroup // of them, the public listeners
	connections connections    // of the public listeners
	failed      chan error     // of a listener
}

// listeners are bound before the database is touched, so that a second process on
// the same address changes nothing there.
type listeners struct {
	https, http net.Listener // nil: none
	admin       net.Listener
}

func bindListeners(ctx context.Context, c listenConfig, receives bool) (ls listeners, err error) {
	defer func() {
		if err != nil {
			ls.close()
		}
	}()
	if ls.admin, err = listen(ctx, "listen.admin", c.Admin); err != nil || !receives {
		return ls, err
	}
	if c.HTTPS != "" {
		if ls.https, err = listen(ctx, "listen.https", c.HTTPS); err != nil {
			return ls, err
		}
	}
	if c.HTTP != "" {
		ls.http, err = listen(ctx, "listen.http", c.HTTP)
	}
	return ls, err
}

func (ls listeners) close() {
	for _, l := range []net.Listener{ls.admin, ls.https, ls.http} {
		if l != nil {
			l.Close() // a second time where its server has closed it
		}
	}
}

func addressOf(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// run serves on ls until ctx is done, and then stops as the configuration says.
// It returns nil after a complete stop, also when that began before the server
// was ready.
func (s *server) run(ctx context.Context, ls listeners) error {
	s.listeners = ls
	s.failed = make(chan error, 3)
	tuneCollector(s.cfg)
	s.metrics = newMetrics()
	s.metrics.configure(s.cfg, s.secrets)
	s.health = &health{log: s.log, offset: func(d time.Duration) { s.metrics.clockOffset.Set(d.Seconds()) }}

	// From the first moment on: a start-up probe asks whether the process lives
	// while the schema is being migrated.
	s.admin = newAdmin(s.log, s.health, s.metrics.registry)
	s.serve("listen.admin", func() error { return s.admin.Serve(limitListener(ls.admin, adminListenerMax)) })
	if err := s.open(ctx); err != nil {
		s.close()
		if ctx.Err() != nil {
			s.log.Info("stopped before it was ready")
			return nil
		}
		return err
	}
	if s.receives {
		s.servePublic()
	}
	// Neither ends with ctx: the stop has an order of its own.
	watching, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.health.Run(watching) })
	if s.confirmer != nil {
		s.running.Go(func() { s.confirmer.Run(watching) })
	}
	s.running.Go(func() { s.pruner().Run(watching) })
	if s.breakers != nil {
		s.running.Go(func() { s.breakers.Run(watching) })
	}
	endTally := s.count(context.WithoutCancel(ctx))
	working, rest := context.WithCancel(context.WithoutCancel(ctx))
	drained := s.work(working)
	s.health.start()
	s.logReady()
	if s.onReady != nil {
		s.onReady()
	}

	var failure error
	select {
	case <-ctx.Done():
		s.log.Info("stopping")
	case failure = <-s.failed:
		s.log.Error("stopping: a listener failed", "error", failure)
	}
	rest()
	if err := s.stop(drained, func() { endTally(); unwatch() }); err != nil {
		return err
	}
	s.log.Info("stopped")
	return failure
}

func (s *server) servePublic() {
	s.public = proxy.NewServer(s.handler())
	s.public.ErrorLog = httpErrors(s.log, "public")
	s.public.TLSConfig = newTLS(s.secrets.Certificates)
	s.public.ConnState = s.connections.note
	if l := s.listeners.https; l != nil {
		s.accepting.Add(1)
		s.serve("listen.https", func() error {
			defer s.accepting.Done()
			return s.public.ServeTLS(l, "", "")
		})
	}
	if l := s.listeners.http; l != nil {
		s.accepting.Add(1)
		s.serve("listen.http", func() error {
			defer s.accepting.Done()
			return s.public.Serve(l)
		})
	}
}

// serve runs a listener. Where it ends by itself, the whole server does.
func (s *server) serve(name string, serve func() error) {
	s.running.Go(func() {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) && !s.health.stopping.Load() {
			s.failed <- fmt.Errorf("%s: %w", name, err)
		}
	})
}

// close ends what outlives the two paths, and waits for it.
func (s *server) close() {
	for _, k := range s.sinks {
		k.Close()
	}
	for _, p := range s.pools {
		p.Close()
	}
	s.admin.Close()
	s.running.Wait()
	s.listeners.close()
}

// open brings the database to where the server can run on it, and makes what
// runs on it.
func (s *server) open(ctx context.Context) error {
	url, pooler := s.secrets.DatabaseURL, s.cfg.Database.Pooler
	look, pool, err := openStore(ctx, url, pooler, "admin", adminConnections, inbox.Config{})
	if err != nil {
		return unreachable(ctx, url, err)
	}
	s.pools, s.look = append(s.pools, pool), look
	db := &checkedDatabase{url: url, pooler: pooler, pool: pool, store: look}
	if err := prepareDatabase(ctx, s.log, db, s.cfg.Database.Migrate, s.throwaway); err != nil {
		return err
	}
	if !s.throwaway { // what a person tries out with is left lying
		if err := refuseGone(ctx, look, s.cfg, url); err != nil {
			return err
		}
	}
	if s.forwards {
		if err := warnStranded(ctx, s.log, look, s.cfg); err != nil {
			return unreachable(ctx, url, err)
		}
	}
	s.health.ready = look.Ready
	s.health.schema = func(ctx context.Context) error { return migrations.Check(ctx, pool) }
	s.metrics.registry.MustRegister(newBacklog(s.log, slices.Sorted(maps.Keys(s.cfg.Sources)), look.Stats, look.GapCounts))

	hash, masked, err := s.cfg.revision()
	if err != nil {
		return err
	}
	if s.revision, err = look.SaveConfig(ctx, hash, masked); err != nil {
		return unreachable(ctx, url, err)
	}
	if err := look.SaveDestinations(ctx, s.revision, s.cfg.destinations()); err != nil {
		return unreachable(ctx, url, err)
	}
	if err := s.remember(ctx); err != nil {
		return unreachable(ctx, url, err)
	}
	if s.forwards {
		if err := s.openConsumers(ctx); err != nil {
			return err
		}
	}
	if s.receives {
		return s.openProxy(ctx)
	}
	return nil
}

// remember reads when each source was last heard of, so that a restart does not
// make a silent one look new.
func (s *server) remember(ctx context.Context) error {
	for name := range s.cfg.Sources {
		for d, err := range s.look.Find(ctx, inbox.Filter{Source: name, Limit: 1}) {
			if err != nil {
				return err
			}
			s.metrics.lastAccepted.WithLabelValues(name).Set(unixSeconds(d.ReceivedAt))
		}
	}
	return nil
}

func (s *server) openConsumers(ctx context.Context) error {
	url := s.secrets.DatabaseURL
	store, pool, err := openStore(ctx, url, s.cfg.Database.Pooler, "consumer", consumerConnections(len(s.cfg.Destinations)), s.orderHooks(ctx))
	if err != nil {
		return unreachable(ctx, url, err)
	}
	s.pools = append(s.pools, pool)
	host, _ := os.Hostname() // only a name for people
	worker := fmt.Sprintf("%s:%d", host, os.Getpid())
	s.consumers = map[string]*consumer.Consumer{}
	s.breakers = newBreakers(s, worker)
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Destinations)) {
		onError := func(err error) { s.log.Warn("consumer", "destination", name, "error", err) }
		f, err := s.cfg.openSink(name, s.secrets.Destinations[name], time.Duration(s.cfg.Destinations[name].Timeout), onError)
		if err != nil {
			return fail(exitConfig, fmt.Errorf("destination %s: %w", name, err), "")
		}
		s.sinks = append(s.sinks, f)
		cfg := s.cfg.consumerConfig(name)
		cfg.Worker = worker
		cfg.ConfigRevision = s.revision
		cfg.OnError = onError
		s.metrics.breaker(name, consumer.BreakerClosed)
		cfg.OnBreaker = func(c consumer.BreakerChange) { s.breakers.change(name, c) }
		cfg.OnAttempt = func(ctx context.Context, r consumer.AttemptResult) {
			s.metrics.attempt(&r)
			s.breakers.attempt(&r)
			if s.onAttempt != nil {
				s.onAttempt(&r)
			} else {
				logAttempt(ctx, s.log, &r)
			}
		}
		if s.consumers[name], err = consumer.New(timedQueue{store, s.metrics.claim}, f, cfg); err != nil {
			return fail(exitConfig, fmt.Errorf("destination %s: %w", name, err), "")
		}
	}
	return nil
}

// orderHooks tell what order keeps from being sent.
func (s *server) orderHooks(ctx context.Context) inbox.Config {
	return inbox.Config{
		OnSuperseded: func(destination string, n int) { s.metrics.superseded.WithLabelValues(destination).Add(float64(n)) },
		OnRevisionConflict: func(c inbox.RevisionConflict) {
			if s.cfg.Sources[c.Source] != nil { // an earlier configuration may have had it
				s.metrics.revisionConflicts.WithLabelValues(c.Source).Inc()
			}
			logRevisionConflict(ctx, s.log, &c)
		},
	}
}

func (s *server) openProxy(ctx context.Context) error {
	url := s.secrets.DatabaseURL
	store, pool, err := openStore(ctx, url, s.cfg.Database.Pooler, "accept", acceptConnections, inbox.Config{
		OnBatch: s.metrics.batch,
		OnForwards: func(destination string) {
			if c := s.consumers[destination]; c != nil { // nil: another process forwards
				c.Wake()
			}
		},
	})
	if err != nil {
		return unreachable(ctx, url, err)
	}
	s.pools = append(s.pools, pool)
	cfg := s.cfg.proxyConfig(s.secrets)
	cfg.ConfigRevision = s.revision
	cfg.OnResult = s.result
	s.confirmer = newConfirmer(s.log)
	for i := range cfg.Sources {
		source := &cfg.Sources[i]
		source.Enrol, source.Confirm = s.enrolment(source.Name), s.confirm(source.Name)
	}
	cfg.OnExplain = s.explained
	s.tally = newTally(s.look, s.log, s.metrics)
	if s.proxy, err = proxy.New(acceptInto(store), cfg); err != nil {
		return fail(exitConfig, err, "hooklatch config check")
	}
	return nil
}

// pruner removes what is old. Each process may: none depends on another.
func (s *server) pruner() *pruner {
	return &pruner{prune: s.look.Prune, retention: s.cfg.retention, log: s.log,
		pruned: func(kind string, rows int) { s.metrics.pruned.WithLabelValues(kind).Add(float64(rows)) }}
}

// count explains what the proxy refuses and writes the tallies, until end is called:
// the last explanation is in the last tally.
func (s *server) count(ctx context.Context) (end func()) {
	if s.proxy == nil {
		return func() {}
	}
	explaining, stop := context.WithCancel(ctx)
	counting, finish := context.WithCancel(ctx)
	var explained, counted sync.WaitGroup
	explained.Go(func() { s.proxy.Run(explaining) })
	counted.Go(func() { s.tally.Run(counting) })
	return func() {
		stop()
		explained.Wait()
		finish()
		counted.Wait()
	}
}

// explained is told of requests that were refused before.
func (s *server) explained(ctx context.Context, e proxy.Explained) {
	s.metrics.explanation(&e)
	s.tally.explained(&e, time.Now())
	if s.onExplain != nil {
		s.onExplain(&e)
	} else {
		logExplained(ctx, s.log, &e)
	}
}

// result is told of each request.
func (s *server) result(ctx context.Context, r proxy.Result) {
	s.metrics.request(&r)
	s.tally.request(&r, time.Now())
	switch {
	case r.Code == "store_full":
		s.health.filled()
	case r.Outcome == proxy.OutcomeAccepted:
		s.health.committed()
	}
	if s.onRequest != nil {
		s.onRequest(ctx, &r)
	} else {
		logRequest(ctx, s.log, &r)
	}
}

// handler is the proxy. Once a stop has begun each answer ends its connection:
// net/http's own way would close idle ones at once, on which the next request
// may be coming in.
func (s *server) handler() http.Handler {
	var h http.Handler = s.proxy
	if s.wrap != nil {
		h = s.wrap(h)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.health.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}

// work runs the consumers until ctx is done. What it returns is closed, after an
// error if there was one, when they have drained.
func (s *server) work(ctx context.Context) <-chan error {
	drained := make(chan error, len(s.consumers))
	var working sync.WaitGroup
	for _, c := range s.consumers {
		working.Go(func() {
			if err := c.Run(ctx); err != nil {
				drained <- err
			}
		})
	}
	go func() {
		working.Wait()
		close(drained)
	}()
	return drained
}

func (s *server) logReady() {
	a := attributes{}
	a.text("version", readVersion().Version)
	a.text("config", s.cfg.file)
	a.add(slog.Int64("config_revision", s.revision))
	a.text("https", addressOf(s.listeners.https))
	a.text("http", addressOf(s.listeners.http))
	a.text("admin", addressOf(s.listeners.admin))
	if s.receives {
		a.add(slog.Int("sources", len(s.cfg.Sources)))
	}
	a.add(slog.Int("destinations", len(s.consumers)))
	s.logOpen()
	s.log.LogAttrs(context.Background(), slog.LevelInfo, "ready", a...)
}

// logOpen says what the scheme of each source leaves open.
func (s *server) logOpen() {
	if !s.receives {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Sources)) {
		for _, v := range []*verify.Verifier{s.secrets.Verifiers[name], s.secrets.Seconds[name]} {
			if v == nil {
				continue
			}
			var codes []string
			for _, w := range v.Scheme.Weaknesses() {
				codes = append(codes, w.Code)
			}
			if len(codes) > 0 {
				s.log.Info("scheme leaves open", "source", name, "scheme", v.Scheme.Name(), "weaknesses", strings.Join(codes, " "))
			}
		}
	}
}
