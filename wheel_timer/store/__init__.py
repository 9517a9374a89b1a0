"""The steps of a task's way in Postgres, a module each; the SQL they call has their names."""
