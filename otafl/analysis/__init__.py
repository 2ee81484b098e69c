"""Numbers from results: tables, paired tests, differences, overhead, timelines, tuning."""
