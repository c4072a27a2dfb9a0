//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package devdb_test

import (
	"context"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/hooklatch/hooklatch/inbox/devdb"
)

func ExampleStart() {
	ctx := context.Background()
	server, err := devdb.Start(ctx, devdb.Config{})
	if err != nil {
		log.Fatal(err) // for lack of binaries it says what to install
	}
	defer server.Stop()

	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close(ctx)
	var encoding, durable string
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_encoding'), current_setting('fsync')`).Scan(&encoding, &durable); err != nil {
		log.Fatal(err)
	}
	fmt.Println(encoding, durable)
	// Output: UTF8 on
}
