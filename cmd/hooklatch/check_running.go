package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox"
)

// What keeps an inbox that starts from doing its work well.
const (
	slowDatabase   = 20 * time.Millisecond
	longOpen       = 5 * time.Minute // a transaction: nobody may clean up behind it
	longWaiting    = 5 * time.Minute // a forward that was never tried
	littleSpace    = 0.10
	hardlyAnySpace = 0.02
)

// checkTransport finds whether somebody on the way could be taken for the database.
func checkTransport(url string) finding {
	f := finding{check: "transport", level: fine}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return finding{check: "transport", what: "the URL of the database does not parse"}
	}
	verified := cfg.TLSConfig != nil && !cfg.TLSConfig.InsecureSkipVerify
	for _, other := range cfg.Fallbacks {
		verified = verified && other.TLSConfig != nil && !other.TLSConfig.InsecureSkipVerify
	}
	switch {
	case strings.HasPrefix(cfg.Host, "/") || isLocal(cfg.Host):
		f.what = "the database is on this machine: " + databaseAddress(url)
	case verified:
		f.what = "TLS, and the server's name is verified: " + databaseAddress(url)
	default:
		f.level, f.what = doubtful, databaseAddress(url)+" is another machine, and its name is not verified: whoever is on the way could read and write"
		f.fix = "sslmode=verify-full in the database URL, with sslrootcert=FILE unless the system knows the authority"
	}
	return f
}

func isLocal(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkLatency measures the way to the database. A delivery takes it twice before its
// 202.
func checkLatency(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	var took []time.Duration
	for range 6 {
		start := time.Now()
		if _, err := db.pool.Exec(ctx, `SELECT 1`); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	took = took[1:] // the first one connects
	slices.Sort(took)
	f := finding{check: "latency", level: fine, what: fmt.Sprintf("%s for a round trip", took[len(took)/2].Round(10*time.Microsecond))}
	if took[len(took)/2] > slowDatabase {
		f.level, f.fix = doubtful, "run hooklatch near the database: a 202 takes at least two round trips and a commit"
	}
	return []finding{f}, nil
}

// The oldest transaction that this login may see. What it may not see has no start.
const transactionSQL = `SELECT pid, coalesce(extract(epoch FROM clock_timestamp() - xact_start), 0)::float8, coalesce(usename, '')::text, application_name
	FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
	ORDER BY xact_start LIMIT 1`

const hiddenSQL = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
	AND xact_start IS NULL AND state IS NULL AND pid <> pg_backend_pid()`

const preparedSQL = `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - prepared)), 0)::float8 FROM pg_prepared_xacts WHERE database = current_database()`

// checkTransactions looks for one that was left open: what is deleted or moved stays in
// tables and indexes until it ends, and claims get slower.
func checkTransactions(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	const check = "transactions"
	var hidden int
	var prepared float64
	if err := db.pool.QueryRow(ctx, hiddenSQL).Scan(&hidden); err != nil {
		return nil, err
	}
	if err := db.pool.QueryRow(ctx, preparedSQL).Scan(&prepared); err != nil {
		return nil, err
	}
	rows, err := db.pool.Query(ctx, transactionSQL)
	if err != nil {
		return nil, err
	}
	var pid int
	var seconds float64
	var user, application string
	if _, err := pgx.ForEachRow(rows, []any{&pid, &seconds, &user, &application}, func() error { return nil }); err != nil {
		return nil, err
	}
	open := time.Duration(seconds * float64(time.Second))
	var found []finding
	if open > longOpen {
		found = append(found, finding{check: check, level: doubtful, what: fmt.Sprintf("one has been open for %s (process %d, user %s, %s): nothing that was removed since can be cleaned up, and claims get slower",
			age(open), pid, user, orNone(application)), fix: fmt.Sprintf("end it: SELECT pg_terminate_backend(%d)", pid)})
	}
	if left := time.Duration(prepared * float64(time.Second)); left > longOpen {
		found = append(found, finding{check: check, level: doubtful, what: fmt.Sprintf("a prepared transaction has been left for %s", age(left)), fix: "SELECT * FROM pg_prepared_xacts, then ROLLBACK PREPARED"})
	}
	if len(found) > 0 {
		return found, nil
	}
	what := "none is open"
	if pid != 0 {
		what = "the oldest has been open for " + age(open)
	}
	if hidden > 0 {
		what += fmt.Sprintf("; this login does not see those of %s of others (GRANT pg_read_all_stats shows them)", counted(hidden, "connection"))
	}
	return []finding{{check: check, level: fine, what: what}}, nil
}

func orNone(text string) string {
	if text == "" {
		return "no application name"
	}
	return text
}

const databaseSizeSQL = `SELECT pg_database_size(current_database()),
	CASE WHEN pg_has_role(session_user, 'pg_read_all_settings', 'MEMBER') THEN (SELECT setting FROM pg_settings WHERE name = 'data_directory') END`

// checkDisk says how much room there is, where that can be seen from here.
func checkDisk(ctx context.Context, db *checkedDatabase) ([]finding, error) {
	var bytes int64
	var folder *string
	if err := db.pool.QueryRow(ctx, databaseSizeSQL).Scan(&bytes, &folder); err != nil {
		return nil, err
	}
	f := finding{check: "disk", level: fine, what: "the database takes " + inUnits(bytes)}
	cfg, err := pgx.ParseConfig(db.url)
	if err != nil || folder == nil || !strings.HasPrefix(cfg.Host, "/") && !isLocal(cfg.Host) {
		f.what += "; how much room is left cannot be seen from here"
		return []finding{f}, nil
	}
	free, all, err := diskSpace(*folder)
	if err != nil || all == 0 {
		f.what += "; how much room is left cannot be seen from here"
		return []finding{f}, nil
	}
	f.what += fmt.Sprintf(", %s of its disk's %s are free", inUnits(free), inUnits(all))
	switch share := float64(free) / float64(all); {
	case share < hardlyAnySpace:
		f.level = wrong
	case share < littleSpace:
		f.level = doubtful
	}
	if f.level != fine {
		f.fix = "hooklatch prune --before DATE, or a shorter retention; a full disk answers 503 to every sender"
	}
	return []finding{f}, nil
}

// inUnits is a number of bytes for people.
func inUnits(bytes int64) string {
	for _, unit := range sizeUnits[:3] {
		if bytes >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(unit.bytes), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// checkWaiting looks at what has not been handed over.
func checkWaiting(ctx context.Context, store *inbox.Store, cfg *config) ([]finding, error) {
	const check = "waiting"
	stats, err := store.Stats(ctx)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, d := range stats {
		f := finding{check: check, level: fine, what: d.Destination + ": nothing is due"}
		if due := max(d.OldestNew, d.OldestRetry); due > 0 {
			f.what = fmt.Sprintf("%s: %s, the oldest has been due for %s", d.Destination, counted(d.Open[inbox.Pending]+d.Open[inbox.RetryWait], "forward"), age(due))
		}
		if d.OldestNew > longWaiting {
			f.level, f.fix = doubtful, "is a server running that forwards? hooklatch events list --destination "+d.Destination+" --state pending"
		}
		if n := d.Open[inbox.Blocked]; n > 0 {
			f.level, f.fix = doubtful, "hooklatch events list --destination "+d.Destination+" --state blocked"
			f.what += ", " + counted(n, "dead letter")
		}
		if cfg != nil && cfg.Destinations[d.Destination] == nil {
			continue // checkGone says more
		}
		found = append(found, f)
	}
	stopped, err := checkStopped(ctx, store)
	found = append(found, stopped...)
	if cfg == nil || err != nil {
		return found, err
	}
	stranded, err := checkStranded(ctx, store, cfg)
	return slices.Concat(found, checkGone(stats, cfg), stranded), err
}

// checkStopped looks for destinations to which nothing, or little, is handed.
func checkStopped(ctx context.Context, store *inbox.Store) ([]finding, error) {
	all, err := store.Destinations(ctx)
	if err != nil {
		return nil, err
	}
	var found []finding
	for _, d := range all {
		if !d.RemovedAt.IsZero() {
			continue
		}
		if d.Pause != nil {
			found = append(found, finding{check: "pause", level: doubtful, what: d.Name + " is " + describePause(d.Pause).text(),
				fix: "hooklatch destinations resume " + shellQuote(d.Name) + " --reason TEXT"})
		}
		if d.Breaker.State != inbox.BreakerClosed {
			what := "that of " + d.Name + " is " + describeBreaker(&d.Breaker).text(time.Now())
			if d.Breaker.Error != "" {
				what += "; " + d.Breaker.Error
			}
			found = append(found, finding{check: "breaker", level: doubtful, what: what, fix: "hooklatch destinations probe " + shellQuote(d.Name)})
		}
	}
	if len(found) == 0 {
		found = append(found, finding{check: "breaker", level: fine, what: "none is open, and nothing is paused"})
	}
	return found, nil
}
