package migrations_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hooklatch/hooklatch/inbox/devdb"
	"github.com/hooklatch/hooklatch/migrations"
)

func ExampleUp() {
	ctx := context.Background()
	server, err := devdb.Start(ctx, devdb.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Stop()

	done, err := migrations.Up(ctx, server.URL("postgres"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done[0].Version, done[0].Name)
	done, err = migrations.Up(ctx, server.URL("postgres"))
	fmt.Println(len(done), err)
	// Output:
	// 1 00001_inbox.sql
	// 0 <nil>
}
