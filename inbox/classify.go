package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// class sorts a database error by what may be done about it.
type class int

const (
	classInternal     class = iota // not known: an alarm, no second try
	classNotCommitted              // nothing was stored; once more on another connection
	classReadOnly                  // fail-over left us on a standby: drop every connection
	classRetry                     // serialization failure or deadlock
	classBlocked                   // lock or statement timeout
	classStale                     // a prepared statement the connection no longer has
	classFull                      // disk full
	classResources                 // another resource of the server is used up
	classData                      // the database refuses a member's values
	classSchema                    // a missing table or right
	classRolledBack                // COMMIT was answered with ROLLBACK
	classUnknown                   // COMMIT may have happened
)

// classify names the class of err. committing says that COMMIT may have been
// sent: from then on a lost connection tells nothing.
func classify(err error, committing bool) class {
	if errors.Is(err, pgx.ErrTxCommitRollback) {
		return classRolledBack
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		// Dial failure, lost connection, timeout: all are network to us.
		if committing {
			return classUnknown
		}
		return classNotCommitted
	}
	if c, ok := classOfCode[pgErr.Code]; ok {
		if c == classNotCommitted && committing {
			return classUnknown
		}
		if pgErr.Code == "0A000" && !strings.Contains(pgErr.Message, "cached plan") {
			return classInternal
		}
		return c
	}
	switch pgErr.Code[:min(2, len(pgErr.Code))] {
	case "08":
		if committing {
			return classUnknown
		}
		return classNotCommitted
	case "22", "23", "54":
		return classData
	case "42":
		return classSchema
	case "53":
		return classResources
	}
	return classInternal
}

var classOfCode = map[string]class{
	"53300": classNotCommitted, // too many connections
	"57P01": classNotCommitted, // admin shutdown
	"57P02": classNotCommitted, // crash shutdown
	"57P03": classNotCommitted, // cannot connect now
	"25006": classReadOnly,
	"40001": classRetry,
	"40P01": classRetry,
	"55P03": classBlocked,
	"57014": classBlocked,
	"0A000": classStale,
	"26000": classStale,
	"42P05": classStale,
	"53100": classFull,
	"3F000": classSchema,
	"22023": classSchema, // a role that is not there
}

// public is what the callers of the store can tell apart of a class.
func (c class) public() error {
	switch c {
	case classNotCommitted, classReadOnly, classStale, classResources:
		return ErrUnavailable
	case classRetry, classBlocked:
		return ErrBusy
	case classFull:
		return ErrFull
	case classUnknown:
		return ErrOutcomeUnknown
	}
	return ErrInternal
}

// storeError names the operation and joins the public sentinel with its cause.
func storeError(op string, c class, cause error) error {
	return fmt.Errorf("%s: %w: %w", op, c.public(), cause)
}

// readError is storeError for statements that change nothing.
func readError(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%s: %w", op, err)
	}
	return storeError(op, classify(err, false), err)
}
