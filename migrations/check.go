package migrations

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
)

// DB is what Check needs of a database: a connection, a pool or a transaction of
// pgx.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// VersionError: this binary does not work with this schema.
type VersionError struct {
	Schema int64 // version of the database; 0: it has none
	Serves int64 // version of the oldest binary that it serves
	Binary int64 // version that this binary needs
}

func (e *VersionError) Error() string {
	if e.Schema < e.Binary {
		return fmt.Sprintf("schema is version %d, this binary needs version %d: run hooklatch migrate up", e.Schema, e.Binary)
	}
	return fmt.Sprintf("schema is version %d and serves binaries of version %d and newer, this one is of version %d: run a newer hooklatch", e.Schema, e.Serves, e.Binary)
}

const versionSQL = `SELECT coalesce(max(version_id), 0), coalesce(obj_description('hooklatch.schema_version'::regclass, 'pg_class'), '')
	FROM hooklatch.schema_version WHERE is_applied`

// Check returns nil when this binary works with the schema of db, and a
// *VersionError when it does not.
func Check(ctx context.Context, db DB) error {
	newest, err := Version()
	if err != nil {
		return err
	}
	return check(ctx, db, newest)
}

func check(ctx context.Context, db DB, binary int64) error {
	var exists bool
	if err := db.QueryRow(ctx, existsSQL).Scan(&exists); err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	if !exists {
		return &VersionError{Binary: binary}
	}
	var version int64
	var comment string
	if err := db.QueryRow(ctx, versionSQL).Scan(&version, &comment); err != nil {
		return fmt.Errorf("check schema: %w", err)
	}
	var serves int64
	if n, _ := fmt.Sscanf(comment, "serves %d", &serves); n == 0 {
		serves = version
	}
	if version < binary || serves > binary {
		return &VersionError{Schema: version, Serves: serves, Binary: binary}
	}
	return nil
}

// Version is the version of the schema that this binary needs: its newest
// migration's.
func Version() (int64, error) {
	names, err := fs.Glob(FS, "*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		newest = max(newest, version)
	}
	return newest, nil
}
