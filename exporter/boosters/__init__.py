"""Reads what XGBoost, LightGBM and CatBoost say of their models, in plain numpy, without these libraries."""
